"""The bench of Encke: what `bench/run.py` measures, and how.

    run.py ──► timed     rounds of load, CPU time a request, paired ratios
           ├─► counts    instructions and system calls a request, an idle server
           ├─► crowds    memory of idle connections, 64 active among 18,000
           ├─► promises  no failed request, no answer held back
           ├─► push      what a message costs a receiver, what a subscriber costs
           ├─► durable   what it costs to be told that a message is stored
           ├─► cluster   what a delivery costs a node that shares its channels by NATS
           └─► tls       memory of a connection by TLS (its timed workloads are in timed)
                  │
                  ├── servers     who serves, and what
                  ├── generators  wrk, ab, h2load, openssl, and a child that holds connections
                  ├── machine     cores, sessions, processes, what the kernel counts
                  └── figures ──► report, plot

Nothing here is installed or imported by Encke; it needs python3's standard library and Debian packages only.
"""
