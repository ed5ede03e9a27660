//! The texts in English.

use super::{ExperimentText, Words};

pub(super) static WORDS: Words = Words {
    tag: "en",
    title: "Encke's laboratory",
    preface: "Each experiment compares an old way, a cure and Encke's way, on this machine, in one run. The figures \
              are this machine's own: another machine has other figures, but similar ratios and curves.",
    machine: "{processors} × {processor}, {memory}, {system}, {descriptors} descriptors, specimens by {compiler}",
    seed: "seed {seed}",
    reading: "A number is a median; the ratio after it is relative to the first row of the same round. ~ means that no \
              difference was seen: the 95 % interval of that ratio contains 1. – means that the cell could not be \
              measured here.",
    question: "The question",
    expectation: "The experiment, and what to expect",
    seen: "Results",
    lesson: "The lesson",
    yes: "seen",
    no: "not seen",
    unclear: "unclear",
    not_measured: "not measured",
    ratio: "{compared}: {ratio} ({low} to {high})",
    baseline: "baseline",
    differs: "differs",
    no_difference: "no difference seen",
    untimed: "not timed",
    too_few: "no verdict: {rounds} rounds",
    absent: "absent: {reason}",
    cpu_time: "CPU time",
    wall_time: "Wall time",
    times_of_kinds: "{time} of {unit}; {rounds} rounds in {seconds} s.",
    times_of_amounts: "{time} of {unit}, by {axis}; {rounds} rounds in {seconds} s.",
    facts: "The events, step by step.",
    counted: ["for one", "cycles", "instructions", "branch misses"],
    unoptimised: "built without optimisation",
    not_optimised: "This program was built without optimisation: Encke's rows have no meaning.",
    experiments: &[
        ExperimentText {
            name: "accept",
            title: "How a server waits for new connections",
            question: "A relay's settings server answered 94 requests a second at any load: its accept loop slept 10 \
                       ms after each check. When it slept only after an empty check, each client got 94; with poll the \
                       rate was some 2,000, but lower with four clients than with two, and the author did not know \
                       why. What does each way of waiting cost, and what else do these loops cost?",
            expectation: "The report's three loops, in C, and a server on Encke's reactor answer the same request with \
                          the same 1,348 bytes, on a new connection each, for c clients at a time. All are threads of \
                          this process. Each loop of the report starts a thread for each connection; Encke's starts \
                          none. Times are wall times. Threads and context switches are counted for the whole process, \
                          including the clients.\n\nExpect the sleep to set the rate: 1/10 ms in the first row, and as \
                          much for each client in the second. Expect poll to remove that limit, and the threads to be \
                          the remaining cost: with few processors, a thread per request means more context switches, \
                          and a rate that bends.",
            lesson: "Only the reactor may wait: the kernel reports when there is work. And work that takes \
                     microseconds needs no thread of its own: to start a thread and to switch to it takes longer.",
            claims: &[
                "Always sleeping means at most 105 requests a second, for any number of clients.",
                "Sleeping after an empty check: four clients together get at least 2.5 times the rate of one.",
                "At c = 1 poll takes at most a fifth of the time.",
                "Encke's reactor, on epoll, takes less time than poll with a thread a connection, at every c.",
                "Encke's reactor, on epoll, takes at most a third of that time, at every c.",
            ],
        },
        ExperimentText {
            name: "backlog",
            title: "When connecting begins to cost a second",
            question: "A chat's author let N clients connect at once. Up to 200 it took a millisecond each; from about \
                       230 on it took seconds. The listen backlog was 128, and the framework hid it. What does a \
                       backlog limit, and how sharp is the limit?",
            expectation: "N connections begin at once, while the server is busy; then it accepts until all are \
                          connected. The figure is the time until the last client is connected. The table also shows \
                          how many attempts the kernel dropped, and how many clients were connected at the end without \
                          having been accepted.\n\nExpect milliseconds as long as the backlog holds the burst. Expect \
                          a second once there is one attempt more: the kernel drops it silently, and TCP retries after \
                          1 s (RFC 6298), then after 2 s more. The system's net.core.somaxconn silently reduces a \
                          larger request; the rows report that.",
            lesson: "The backlog does not limit the number of connections, but the number that may arrive between two \
                     accepts. Request 4,096, let the system allow it, and watch the counter of drops. Encke requests \
                     it, warns at the start if the system reduces it, and counts drops.",
            claims: &[
                "A burst of 230 takes a second with a backlog of 128.",
                "With Encke's default the same burst takes at most a fifth of that.",
                "The edge moves with the backlog: 511 holds 230, and a burst of 600 takes a second.",
                "Encke's default holds the largest burst: at most a fifth of the time that 128 takes.",
            ],
        },
        ExperimentText {
            name: "comet",
            title: "How many clients a chat can hold",
            question: "A chat server had its clients wait in long polls. With 50 of them a message reached all in 28 \
                       ms, with 1,000 in 4.65 s, with 2,000 in 9.48 s: 500 clients were the most that still felt like \
                       a chat. Its memory grew by 10 KB per client, but hardly from 1,000 clients to 2,000, which its \
                       author did not explain. What do N clients cost when they connect, when one message is \
                       published, and while they wait?",
            expectation: "Each round starts a server as a separate process. N clients of `encke load`, on one thread \
                          of this process, connect all at once; c is the time until the last one is accepted. Then one \
                          message of 64 bytes is published: r is the time from the first client that receives it to \
                          the last, as the report measured it. The table also shows how long the first client waited. \
                          The server's address space (VSZ) and resident memory (RSS) are read while all clients wait. \
                          Then all clients leave. The next round starts another server, so that its memory belongs to \
                          these N clients only. Dashed curves are the report's, measured on its author's machine with \
                          clients in Perl.\n\nExpect c and r to grow with N and no faster, without the step at 230 \
                          that a backlog of 128 causes. Expect r to be a hundredth of the report's or less. Expect \
                          memory to grow with every connection. It is flat where no connection is added: the last row \
                          allows 1,000 connections, and rejects the others.",
            lesson: "A waiting connection needs only a few hundred bytes of the server's memory, and a message that is \
                     encoded once costs each client one send. So 500 clients are no longer a chat's limit. A memory \
                     curve that turns flat means that another resource is exhausted. In the report, another 1,000 \
                     connections took 396 KB. At 10 KB each that is enough for some 38 connections: a few more than \
                     the 1,024 descriptors that a process had by default. The same framework, run again with 1,024 \
                     descriptors, held 1,015 of 2,000 clients, and its memory was as flat; with more descriptors it \
                     grew linearly. The other clients waited in the backlog, which had just been raised to 4,096: for \
                     them the connection was established.",
            claims: &[
                "With 2,000 clients r is at most a hundredth of the report's 9.48 s, by every transport.",
                "With 2,000 clients c is at most a fifth of the report's 2.62 s, by every transport.",
                "With 500 clients no client waits for a second attempt: c stays below a second.",
                "With 2,000 clients a connection takes at most 2 KB of the server's resident memory.",
                "Memory is flat from 1,000 to 2,000 if only 1,000 are admitted, and only then.",
            ],
        },
        ExperimentText {
            name: "fanout",
            title: "The cost of a message to all subscribers",
            question: "A message to N subscribers takes N sends. What is the kernel's minimum for that, what do other \
                       system calls save, and what does a server add with its channels, histories and frames?",
            expectation: "A thread that does nothing else reads N connections over loopback. A message of 64 bytes, \
                          with the 2 bytes that make it a frame, is sent to each of them: by send, one after the \
                          other; by writev of eight messages at once; by Encke's reactor alone, on epoll and on \
                          io_uring, where one system call submits all sends; and by Encke as a separate process, which \
                          receives the message by a request and sends it to N WebSockets. The next message waits until \
                          all have this one. The figure is CPU time of the sender: of the thread, or of all of Encke's \
                          threads, including the request.\n\nExpect send to be most of the cost everywhere: it is \
                          TCP's own work, and on loopback the receiver's half as well. No system call sends one \
                          message to many TCP connections: sendmmsg sends datagrams on one socket. io_uring saves \
                          entering the kernel, not the work there. So only the number of sends can be reduced: send \
                          several messages for a subscriber together.",
            lesson: "The floor is the kernel's: a send each. A good server stays near it, and goes below it by sending \
                     less often: eight messages in one send cost little more than one. Encke encodes a message once \
                     for all subscribers, keeps a position and not a queue for each of them, and sends all messages \
                     since the last send in one call.",
            claims: &[
                "Eight messages in one writev take at most half the time of eight sends, at every N.",
                "Encke's reactor on epoll takes at most 1.25 times as long as send alone, at the largest N.",
                "One submit to io_uring for all takes at most as long as send alone, at the largest N.",
                "Encke as a whole takes at most 1.5 times as long as send alone, at the largest N.",
                "Eight messages published together take Encke at most half their time one by one, at the largest N.",
            ],
        },
        ExperimentText {
            name: "mux",
            title: "From an event to its connection",
            question: "A report compared poll and epoll with 10,000 connections. With 100 rounds epoll won, with 500 \
                       poll was ahead, with 1,000 far ahead. Its epoll programs searched an array from the start for \
                       each event's record; with poll the index was the record's index. What decides: the system call, \
                       or the way to the record?",
            expectation: "Echo servers in C wait with poll and with epoll, level and edge. Those with epoll find the \
                          record by search, as the report's did, and by an index in the event. One receives each event \
                          as a queued signal (O_ASYNC), and Encke's reactor does the same on each of its back ends. In \
                          a round some of the connections get 1,024 bytes each, all before the server checks; the \
                          figure is its CPU time for receiving and answering them. In two rows 50 threads on the \
                          server's processor send the messages meanwhile: the report's clients were threads. The \
                          number of connections is the report's, or as many as the limit of descriptors allows, two \
                          for each. The fewer there are, the less a search and a poll cost.\n\nExpect poll to cost the \
                          same however few connections are active, a search to cost half of all records for each \
                          event, and an index nothing. So with few active connections any epoll wins. With all active, \
                          epoll with a search loses to poll, and epoll with an index does not. The number of rounds, \
                          100, 500 or 1,000, changes nothing here. A signal for each event costs more than many events \
                          per call. Threads as clients hide the differences, because the server wakes for few messages \
                          at a time.",
            lesson: "From an event to its connection must be one step; the multiplexer alone decides nothing. In Encke \
                     an event carries the connection's index and its generation.",
            claims: &[
                "All active: poll takes at most 0.9 of the time of epoll with a search.",
                "Few active: even with a search epoll takes at most half of poll's time.",
                "With an index epoll never takes more than 1.3 times poll's time.",
                "All active: with an index epoll takes at most 0.8 of the time with a search.",
                "All active: Encke, on epoll, takes at most as long as epoll with a search.",
                "Few active: Encke, on epoll, takes at most half of poll's time.",
            ],
        },
        ExperimentText {
            name: "parser",
            title: "How a request's head is parsed",
            question: "A report on a small edge-triggered server found that a computed goto in place of a switch made \
                       its parser faster, and that the size of a ring buffer should be a power of two. Which of the \
                       two matters, and how much slower than possible is a parser that checks every byte?",
            expectation: "One grammar is compiled with each way to find the next state and each way to find the next \
                          byte; nothing else differs. The experiment compares them with two well-known parsers, and \
                          with Encke's, which also decides everything a server must know: the body's length, \
                          persistence, the host.\n\nExpect the mask to matter and the computed goto not to: a modern \
                          processor predicts a switch's jump well, and a table of labels adds one load per byte. A \
                          threaded goto jumps to a label itself, without a table; whether that is faster depends on \
                          the compiler, the processor, and the placement of the code. Expect vectors to win by more \
                          the longer the fields are, because they check 32 bytes at a time.",
            lesson: "The number of steps per byte decides. A mask removes a multiplication, a shift and a subtraction \
                     from each byte; vectors remove the byte.",
            claims: &[
                "With a mask the byte-wise parser takes at most 0.95 of the time, for every request.",
                "With the same division, a computed goto is no faster than the switch, on a browser's request.",
                "Encke takes about half the time of the report's parser or less, from 106 bytes on.",
                "Vectors make Encke's parser faster, on a browser's request.",
                "Encke takes at most as long as picohttpparser on a browser's request.",
                "Encke takes at most 1.1 times as long as picohttpparser on the two short requests.",
            ],
        },
        ExperimentText {
            name: "ring",
            title: "The gain of a mask",
            question: "The same report made its ring 8,192 bytes long, in place of 8,124, so that a mask and not a \
                       division turns a position into an index. How much does that gain?",
            expectation: "A ring is read byte by byte, with no other work and within the parser: by % a constant, by % \
                          a size that is known only at run time, by a comparison, by a mask.\n\nExpect the mask to \
                          win, but check by how much: a compiler has long turned the constant's division into a \
                          multiplication. Only a real division is expensive.",
            lesson: "Make a ring's size a constant power of two. If that is impossible, compare and reset: the branch \
                     is nearly always predicted.",
            claims: &[
                "A mask is faster than % 8124, reading alone.",
                "A mask is faster than % 8124, in the parser.",
                "% a constant is faster than % a size known at run time.",
            ],
        },
        ExperimentText {
            name: "timers",
            title: "The cost of a deadline for every connection",
            question: "The report's server keeps its deadlines in a binary heap and deletes lazily: an obsolete entry \
                       stays until it reaches the top. What does that cost with long-lived connections, and what do \
                       other structures cost?",
            expectation: "Each of N connections has a deadline 10 s ahead. 100,000 requests a second arrive from \
                          random ones, and each postpones its connection's deadline; after 64 of them the structure \
                          returns the expired ones. Time is simulated.\n\nExpect the heaps and the tree to cost more \
                          with more connections, by the logarithm and by cache misses. Expect the lazy heap to hold \
                          several times as many entries as there are connections, because each postponed entry stays \
                          until it is the smallest. Expect the wheel to cost the same always. (Encke does still less: \
                          it postpones in the connection and does not touch the wheel.)",
            lesson: "A deadline that is nearly always postponed needs no order. A wheel gives up exactness, 17 ms, for \
                     a cost that does not depend on N.",
            claims: &[
                "The wheel takes at most 0.8 of the lazy heap's time, at every N.",
                "The wheel takes at most 0.8 of the heap's time that can delete, at every N.",
                "The wheel takes at most 0.8 of the ordered tree's time, at every N.",
            ],
        },
        ExperimentText {
            name: "trigger",
            title: "Level and edge",
            question: "Level-triggered epoll reports a descriptor as long as there is something to read; \
                       edge-triggered epoll reports it when something arrives. What does a program see that reads two \
                       bytes at a time?",
            expectation: "`aabbcc` arrives, the program waits and reads in four turns; then `dd` arrives, and four \
                          turns more. A turn shows the bytes that it read; - means that nothing was \
                          reported.\n\nExpect one report per edge. A program that then leaves bytes unread learns of \
                          them when others arrive: the answer to `dd` is `bb`, and every answer after it is late.",
            lesson: "With edges, read until the kernel has no more. That saves a report for each event, and it is the \
                     only way not to serve stale bytes.",
            claims: &[
                "Level reports until all is read: aa, bb, cc, then dd.",
                "Edge reports once; when dd arrives, the program reads bb.",
                "A program that drains misses nothing, and gets one report.",
            ],
        },
        ExperimentText {
            name: "zerocopy",
            title: "The cost of sending a file",
            question: "A report ported sendfile to a system that lacked it, and its server sent a picture of 2.4 MB \
                       twice as fast. Where does each method win?",
            expectation: "A file in the kernel's cache is sent over loopback to a receiver that discards it: read into \
                          a buffer of 4 KiB or 64 KiB and written; mapped and written; by sendfile; by splice through \
                          a pipe; with MSG_ZEROCOPY; by io_uring, 4 times 64 KiB read and sent in one system call; and \
                          as Encke does it, with a head of 200 bytes before it. The figure is CPU time of the sender, \
                          by the size of the file.\n\nExpect sendfile to win by more the larger the file is, and to \
                          lose if the file is so small that one more system call costs more than a copy. Expect little \
                          of MSG_ZEROCOPY: on loopback the kernel copies in any case. io_uring saves system calls, and \
                          copies as much as read and write do.",
            lesson: "System calls weigh on small files, copies on large ones; a small buffer pays for both. sendfile \
                     avoids the copy for any application; on loopback, where every page is accounted for separately, a \
                     mapped file can equal it. A small file is best copied once from memory: Encke sends files below 8 \
                     KiB from its cache.",
            claims: &[
                "Encke needs at most half the CPU time of read and write (4 KiB) for the picture.",
                "Encke needs at most 0.7 of the CPU time of read and write (64 KiB) for the picture.",
                "sendfile needs at most 0.7 of the CPU time of read and write (64 KiB) for 64 KiB.",
                "For 1 KiB, read and write takes at most 1.1 times as long as sendfile.",
                "sendfile needs at most half the CPU time of MSG_ZEROCOPY for 64 KiB, on loopback.",
            ],
        },
    ],
    names: &[],
};
