"""The measurements of `bench/run.py`.

    run.py ──► timed     rounds of load, CPU time per request, paired ratios
           ├─► counts    instructions and system calls per request, an idle server
           ├─► crowds    memory of idle connections, 64 active among 18,000
           ├─► promises  no failed request, no delayed response
           ├─► push      cost of a message per receiver, cost of a subscriber
           ├─► cluster   cost of a delivery for a node that shares its channels by NATS
           └─► tls       memory of a TLS connection (its timed workloads are in timed)
                  │
                  ├── servers     servers and resources
                  ├── generators  wrk, ab, h2load, openssl, and a child that holds connections
                  ├── entries     servers during the rounds of push and live streams
                  ├── machine     cores, sessions, processes, counters of the kernel
                  └── figures ──► report

Encke installs and imports nothing from here. The bench needs only python3's standard library and Debian packages.
"""
