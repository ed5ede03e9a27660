//! The texts in English.

use super::{ExperimentText, Words};

pub(super) static WORDS: Words = Words {
    tag: "en",
    title: "Encke's laboratory",
    preface: "Each experiment lays an old way, a cure and Encke's way side by side, on this machine, in one run. The \
              figures are this machine's own: their ratios and shapes carry over to another one, their size does not.",
    machine: "{processors} × {processor}, {memory}, {system}, {descriptors} descriptors, specimens by {compiler}",
    seed: "seed {seed}",
    reading: "A number is a median; behind it stands the ratio to the first row, made within each round. ~ means that \
              no difference was seen: the 95 % interval of that ratio holds 1. – means that the cell could not be \
              measured here.",
    question: "The question",
    expectation: "What is done, and what to expect",
    seen: "What was seen",
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
    facts: "What happens, step by step.",
    counted: ["for one", "cycles", "instructions", "branch misses"],
    unoptimised: "built without optimisation",
    not_optimised: "This program was built without optimisation: Encke's own rows say nothing.",
    experiments: &[
        ExperimentText {
            name: "accept",
            title: "How a server waits for those who connect",
            question: "A relay's settings server answered 94 requests a second, whatever the load: its accept loop \
                       slept 10 ms after each look. Sleeping only when nobody had come made it 94 for each client; \
                       poll made it some 2,000, but with four clients fewer than with two, and the author did not \
                       know why. What does each way to wait cost, and what else is in those loops?",
            expectation: "The report's three loops, in C, and a server on Encke's reactor answer the same request with \
                          the same 1,348 bytes, a new connection each, for c clients at a time. All are threads of \
                          this process. Each loop of the report starts a thread for each connection; Encke's starts \
                          none. Times are wall times; threads and switches from one thread to another are counted for \
                          the whole process, clients and all.\n\nExpect the sleep to be a law: 1/10 ms in the \
                          first row, and the same for each client in the second one. Expect poll to end that, and the \
                          threads to be what is left: on few processors a thread more for each request means switches \
                          more, and a rate that bends.",
            lesson: "Nothing but the reactor may wait: the kernel tells when there is work. And work that takes \
                     microseconds needs no thread of its own: to start one, and to switch to it, takes longer.",
            claims: &[
                "Always sleeping means at most 105 requests a second, for any number of clients.",
                "Sleeping when nobody came: four clients together get at least 2.5 times what one gets.",
                "At c = 1 poll takes at most a fifth of the time.",
                "Encke's reactor, on epoll, takes less time than poll with a thread a connection, at every c.",
                "Encke's reactor, on epoll, takes at most a third of that time, at every c.",
            ],
        },
        ExperimentText {
            name: "backlog",
            title: "Where connecting begins to cost a second",
            question: "A chat's author let N clients connect at once. Up to 200 it took a millisecond each; from about \
                       230 on it took seconds. The listen backlog was 128, and the framework hid it. What does a \
                       backlog decide, and how sharp is the edge?",
            expectation: "N connections begin at once, while the server is busy with something else; then it accepts \
                          until it has none left. What is told is how long it takes until the last client is \
                          connected; beside it, how many attempts the kernel dropped, and how many of those who \
                          believed themselves connected at the end the server had not accepted.\n\nExpect \
                          milliseconds as long as the backlog holds the burst. Expect one attempt more than that to \
                          cost a second: the kernel drops it in silence, and TCP tries again after 1 s (RFC 6298), \
                          then after 2 s more. The system's net.core.somaxconn cuts whatever a program asks for, in \
                          silence too; the rows say so.",
            lesson: "The backlog is not how many can connect: it is how many may come while you look away. Ask for \
                     4,096, have the system allow it, and look at the counter of drops. Encke asks, warns at the start \
                     if the system cuts it, and counts.",
            claims: &[
                "A burst of 230 takes a second with a backlog of 128.",
                "With Encke's default the same burst takes at most a fifth of that.",
                "The edge moves with the backlog: 511 holds 230, and a burst of 600 takes a second.",
                "Encke's default holds the largest burst: at most a fifth of the time that 128 takes.",
            ],
        },
        ExperimentText {
            name: "comet",
            title: "How many a chat can hold",
            question: "A chat server had its clients wait in long polls. With 50 of them a message was with all in 28 ms, \
                       with 1,000 in 4.65 s, with 2,000 in 9.48 s: a crowd of 500 was the most that felt like a chat. Its \
                       memory grew by 10 KB a client, and from 1,000 clients to 2,000 hardly at all, which its author \
                       did not explain. What do N clients cost when they connect, when one message is said, and while \
                       they wait?",
            expectation: "A server is started as a process of its own. N clients, those of `encke load` on one thread of \
                          this process, connect all at once; c is how long that takes until the last one is answered. \
                          Then one message of 64 bytes is published: r is the time from the first client that has it to \
                          the last one, as the report measured it; beside it stands how long the first one waited. The \
                          server's address space (VSZ) and resident memory (RSS) are read while all wait. Then all leave. \
                          The next round has a server of its own again, so that its memory is that of these N. Broken \
                          curves are the report's, on its author's machine, with clients in Perl.\n\nExpect c and r to \
                          grow with N and no faster, without the step at 230 that a backlog of 128 makes, and r to be a \
                          hundredth of the report's or less. Expect memory to grow with every connection. It is flat \
                          where no connection is added: the last row allows 1,000, and turns the others away.",
            lesson: "A connection that waits need not hold more than a few hundred bytes of the server's own, and a message \
                     that is encoded once costs each of them one send. So a chat's limit is no longer 500. A curve of \
                     memory that turns flat says that something else has ended. In the report, 1,000 connections more \
                     took 396 KB, which at its own 10 KB each is enough for some 38: few more than the 1,024 \
                     descriptors that a process had by default. The same framework, tried again with 1,024 \
                     descriptors, held 1,015 of 2,000 clients, and its memory was as flat; with more descriptors it was \
                     straight. The others waited in the backlog, which had just been raised to 4,096: connected, as far \
                     as they knew.",
            claims: &[
                "With 2,000 clients r is at most a hundredth of the report's 9.48 s, by every transport.",
                "With 2,000 clients c is at most a fifth of the report's 2.62 s, by every transport.",
                "With 500 clients nobody waits for a second try: c stays below a second.",
                "With 2,000 clients a connection takes at most 2 KB of the server's resident memory.",
                "Memory is flat from 1,000 to 2,000 where only 1,000 are let in, and only there.",
            ],
        },
        ExperimentText {
            name: "fanout",
            title: "What it costs to tell everybody",
            question: "To bring a message to N subscribers takes N sends. What is the least that the kernel asks for that, \
                       what do other ways to ask for it save, and what does a server add with its channels, histories \
                       and frames?",
            expectation: "N connections over loopback are read by a thread that does nothing else. A message of 64 bytes, \
                          with the 2 bytes that make it a frame, is sent to each of them: by send, one after the other; \
                          by writev of eight messages at once; by Encke's reactor, with nothing above it, on epoll and on \
                          io_uring, where one system call submits them all; and by Encke as a process of its own, which \
                          is given the message by a request and sends it to N WebSockets. The next message waits until \
                          all have this one. What is told is CPU time of who sends: of the thread, or of all of Encke's \
                          threads, the request included.\n\nExpect send to be most of the cost everywhere: TCP's own \
                          work, on loopback the receiver's half as well. Nothing gives one message to many TCP connections \
                          in one call: sendmmsg is for datagrams of one socket. io_uring saves the way into the \
                          kernel, not what is done there. So what can be saved is sends: who has several messages for a \
                          subscriber sends them together.",
            lesson: "The floor is the kernel's: a send each. A server is good if it stays near it, and it goes below it \
                     by sending less often: eight messages in one send cost little more than one. Encke encodes a \
                     message once for all, holds a position for each subscriber and not a queue, and sends in one call \
                     whatever has come since the last one.",
            claims: &[
                "Eight messages in one writev take at most half of what eight sends take, at every N.",
                "Encke's reactor on epoll takes at most 1.25 times as long as send alone, at the largest N.",
                "One submit to io_uring for all takes at most as long as send alone, at the largest N.",
                "Encke as a whole takes at most 1.5 times as long as send alone, at the largest N.",
                "Eight messages published together take Encke at most half of what they take one by one, at the largest N.",
            ],
        },
        ExperimentText {
            name: "mux",
            title: "From an event to its connection",
            question: "A report compared poll and epoll with 10,000 connections. With 100 rounds epoll won, with 500 \
                       poll was ahead, with 1,000 far ahead. Its epoll programs looked for each event's record from \
                       the head of an array; poll's index was the record's index. What decides: the system call, or \
                       the way to the record?",
            expectation: "Echo servers in C wait with poll and with epoll, level and edge; epoll's find the record by \
                          search, as the report's did, and by an index in the event. One is told of each event by a \
                          signal that is queued (O_ASYNC), and Encke's reactor does the same on each of its back ends. \
                          In a round, some of the connections get 1,024 bytes each, all before \
                          the server looks; its CPU time for receiving and answering them is taken. In two rows 50 threads \
                          on the server's processor say the messages meanwhile: the report's clients were threads. The number \
                          of connections is the report's, or what the limit of descriptors allows, two for each: the \
                          fewer there are, the less a search and a poll cost.\n\nExpect poll to cost the same \
                          however few are active, a search to cost half of all records for each event, and an index \
                          nothing. So with few active any epoll wins; with all active the one that searches loses to \
                          poll, and the one that does not, does not. How often the rounds are repeated, 100, 500 or \
                          1,000 times, changes nothing here. A signal for each event costs more than to be told many at a \
                          time; threads as clients blur it all, as the server wakes for few messages at a time.",
            lesson: "From an event to its connection must be one step; the multiplexer alone decides nothing. In Encke \
                     an event carries the connection's place and its generation.",
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
            title: "How a request's head is read",
            question: "A report on a small edge-triggered server found that a computed goto in place of a switch made \
                       its parser faster, and that a ring buffer should have a size of a power of two. Which of both \
                       matters, and how far is a parser that looks at every byte from what is possible?",
            expectation: "One grammar, written down once, is compiled with each way to find the next state and each \
                          way to find the next byte; nothing else differs. Beside them stand two well-known parsers, \
                          and Encke's, which also decides what a server must know: the body's length, persistence, \
                          the host.\n\nExpect the mask to matter and the computed goto not to: a modern processor \
                          predicts a switch's jump well, and a table of labels is one load more for each byte. A \
                          threaded goto jumps to a label itself, so that nothing is looked up; whether that is faster \
                          depends on the compiler, the processor, and where the code comes to lie. Expect vectors to win by more the longer the fields are, for they look at 32 \
                          bytes at a time.",
            lesson: "What decides is how many steps a byte takes. A mask removes a multiplication, a shift and a \
                     subtraction from each; vectors remove the byte.",
            claims: &[
                "A mask makes the byte-wise parser faster.",
                "With the same division, a computed goto is no faster than the switch, on a browser's request.",
                "Encke takes about half the time of the report's parser or less, from 106 bytes on.",
                "Vectors make Encke's parser faster, on a browser's request.",
                "Encke takes at most as long as picohttpparser on a browser's request.",
                "Encke takes at most 1.1 times as long as picohttpparser on the two short requests.",
            ],
        },
        ExperimentText {
            name: "ring",
            title: "What a mask buys",
            question: "The same report made its ring 8,192 bytes long, in place of 8,124, so that a position becomes a \
                       place by a mask and not by a division. What does that buy?",
            expectation: "A ring is read byte by byte, with nothing else to do and within the parser: by % a constant, \
                          by % a size that is known at run time only, by a comparison, by a mask.\n\nExpect the mask \
                          to win, but look at the size: the compiler has made the constant's division a \
                          multiplication long ago. A real division is what costs.",
            lesson: "Let a ring's size be a constant power of two. If it cannot be, compare and set back: the branch \
                     is nearly always predicted.",
            claims: &[
                "A mask is faster than % 8124, reading alone.",
                "A mask is faster than % 8124, in the parser.",
                "% a constant is faster than % a size known at run time.",
            ],
        },
        ExperimentText {
            name: "timers",
            title: "What a deadline for every connection costs",
            question: "The report's server keeps its deadlines in a binary heap and deletes lazily: an entry that no \
                       longer holds stays until it comes up. What does that cost when connections live for long, and \
                       what do other structures cost?",
            expectation: "Each of N connections has a deadline 10 s ahead. 100,000 requests a second come from random \
                          ones, and each postpones its connection's deadline; after 64 of them the expired ones are \
                          asked for. Time is reckoned, not waited for.\n\nExpect the heaps and the tree to cost more \
                          with more connections, by the logarithm and by the misses of the cache; the lazy heap to \
                          hold several times as many entries as there are connections, for each postponed one stays \
                          until it is the least; the wheel to cost the same always. (Encke does \
                          still less: it postpones in the connection and leaves the wheel alone.)",
            lesson: "A deadline that is nearly always postponed needs no order. A wheel gives up exactness, 17 ms, for \
                     a cost that knows no N.",
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
                          turns more. A turn is what was read in it; - means that nothing was reported.\n\nExpect the \
                          edge to be told once. Whoever then leaves bytes unread learns of them when others arrive: \
                          the answer to `dd` is `bb`, and every answer after it is late.",
            lesson: "With edges, read until the kernel has no more. It saves a report for each event, and it is the \
                     one way not to serve stale bytes.",
            claims: &[
                "Level reports until all is read: aa, bb, cc, then dd.",
                "Edge reports once; when dd arrives, what is read is bb.",
                "Who drains misses nothing, and is told once.",
            ],
        },
        ExperimentText {
            name: "zerocopy",
            title: "What it costs to send a file",
            question: "A report ported sendfile to a system that lacked it, and its server sent a picture of 2.4 MB \
                       twice as fast. Where does each way to send a file win?",
            expectation: "A file that is in the kernel's cache is sent over loopback to somebody who throws it away: \
                          read into a buffer and written, of 4 KiB and of 64 KiB; mapped and written; by sendfile; \
                          by splice through a pipe; with MSG_ZEROCOPY; by io_uring, 4 times 64 KiB read and sent in one \
                          system call; and as Encke does it, with a head of 200 bytes before it. What counts is CPU time of the sender, by the size of the file.\n\nExpect \
                          sendfile to win by more the larger the file is, and to lose where a file is so small that \
                          one more system call weighs more than a copy. Expect little of MSG_ZEROCOPY: on loopback the \
                          kernel copies all the same. io_uring saves system calls and copies as much as read and write \
                          do.",
            lesson: "Two things cost: system calls, which weigh on small files, and copies, which weigh on large ones. A \
                     small buffer pays for both. sendfile leaves the copy out, whoever is the application behind; on \
                     loopback, where every page is taken into account by itself, a mapped file can be level with it. A \
                     small file is best copied once from memory: Encke sends files below 8 KiB from its cache.",
            claims: &[
                "Encke needs at most half the CPU time of read and write (4 KiB) for the picture.",
                "Encke needs at most 0.7 of the CPU time of read and write (64 KiB) for the picture.",
                "sendfile needs at most 0.7 of the CPU time of read and write (64 KiB) for 64 KiB.",
                "For 1 KiB, read and write is level with sendfile (at most 1.1 times its time).",
                "sendfile needs at most half the CPU time of MSG_ZEROCOPY for 64 KiB, on loopback.",
            ],
        },
    ],
    names: &[],
};
