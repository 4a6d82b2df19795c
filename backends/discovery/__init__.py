"""Where backends are found while the gateway runs.

source       what a source is, and what every backend that it finds has in common
dns          A, AAAA and SRV records, for as long as their TTL says
kubernetes   EndpointSlices by label: list and watch
registry     servers that register themselves in Redis, for as long as they say so
reconcile    from what the sources found to joining and leaving the fleet

Nothing here decides whether a backend is fit for traffic: what is found is probed and warmed as
every backend is, and what is found no more is drained.
"""
