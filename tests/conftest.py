"""What each test process needs before torch is imported: one thread, loopback, no network."""

import os

from hypothesis import settings

for name, value in {
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
}.items():
    os.environ.setdefault(name, value)

# The same examples each time, and no failure because a machine is busy.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
