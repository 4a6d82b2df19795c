"""What clients may ask: the table of endpoints and what is special to some of them.

`endpoints` is the table, `router` finds an exchange's row, `openapi` describes it to clients.
`held` knows where stored responses are, `media` what pictures cost, `multipart` finds the model in
a form, `waiting` keeps a waiting stream open. The story that they all share is `gateway.handlers`.
"""
