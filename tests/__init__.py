"""The tests. What is set here is in the environment before numpy and torch are imported, and in that of all children.

Threads of OpenBLAS and OpenMP spin while they wait, and take the cores from the other processes of a run: two of them
computed more than ten times as long on two busy cores.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as our own processes do for themselves
