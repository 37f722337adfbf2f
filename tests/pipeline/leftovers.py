"""Named segments of shared memory: what a process that is killed would leave behind."""

import re


def segments_of(pid):
    """Return the names under /dev/shm that process ``pid`` has mapped; there all of them outlive a kill.

    Looked up per process, not by listing /dev/shm: other programs come and go there.
    """
    with open("/proc/%d/maps" % pid) as file:
        return set(re.findall(r"/dev/shm/(\S+)", file.read()))
