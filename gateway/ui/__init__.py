"""The live page: what the brain knows, shown to a person while it happens.

`news` remembers what happened, `counts` and `timeline` what was measured, `document` puts the
present state together, `broadcast` tells every open page, `page` does so once a second,
`listener` serves it all on the admin address. Nothing here is on a request's path, and nothing
can be changed from here.
"""
