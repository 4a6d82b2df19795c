"""Several relay processes around one brain, on one machine.

    client ──► relay process (HTTP, tokenizing, relaying) ──► vLLM
                    │  ▲  ticket, reports │ dispatch, rejection
                    ▼  │                  ▼
               brain (scheduler, backends' lives, control), the parent of all

`link` carries messages over a socket pair, `messages` says what they look like, `remote` is the
brain as a relay process sees it, `port` is a relay process as the brain sees it, `relay` holds
one process, `relays` all of them, `process` is what runs in one, `node` puts the parent together.
"""
