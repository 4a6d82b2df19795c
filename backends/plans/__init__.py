"""Engine plans: how `vllm serve` should be started for each class, and why.

model     what a plan consists of
shapes    how long a class's prompts are: assumed, or from recorded traffic
rules     from model, GPU and shape to flags with their reasons
render    a plan as a command line, as compose services, as Kubernetes containers
file      a plan as a file that a person can read and change, and reading it back

Starting engines is not done here (`managed`).
"""
