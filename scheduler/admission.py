"""Whether a backend has room for one more ticket of a class now."""

from math import ceil

from scheduler.fleet import Member


def class_slots(member: Member, service_class: str, smallest: str, reserve: float) -> int:
    """How many requests of the larger classes together, or of the smallest, a backend takes.

    Where a backend serves the smallest class beside others, a share of its slots is closed to
    the others: they would fill all of them for seconds, while short requests come and go.
    At least one slot stays open to every class.
    """
    backend = member.backend
    shared = not backend.classes or (smallest in backend.classes and len(backend.classes) > 1)
    if service_class == smallest or not shared:
        return backend.limit
    return max(1, backend.limit - ceil(backend.limit * reserve))


def has_room(member: Member, service_class: str, smallest: str, reserve: float) -> bool:
    """Whether the backend's own limits let one more ticket of the class in."""
    in_flight = member.in_flight
    if in_flight >= member.backend.limit:
        return False
    if service_class == smallest:
        return True
    others = in_flight - member.by_class.get(smallest, 0)
    return others < class_slots(member, service_class, smallest, reserve)
