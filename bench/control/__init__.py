"""The control plane under load: three gateways, simulated engines, a real Redis.

fleet     what runs: engines, gateways (processes of the command line), Redis that can be killed
client    requests to the gateways, and what became of them
changes   how soon a change is in force everywhere; a hundred that must not be
loss      Redis is gone for half a minute while requests run
quota     one tenant's limit through three gateways
slots     one backend's slots between three gateways, one of which is killed
canary    a slower group that must go back by itself, an equal one that must get through
command   `python -m bench control`
"""
