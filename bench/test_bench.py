"""Tests of the bench itself: `python3 -m unittest discover bench`. No server, tool or network beyond loopback."""

import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import run as program
from encke_bench import agreement, console, counts, crowds, generators, holder, machine, promises, push, report, servers, sources, stream, timed
from encke_bench.figures import Bar, Ratio, Section, judge, paired
from encke_bench.machine import Cpu, Trouble

AB = """Server Software:        nginx/1.22.1
Concurrency Level:      64
Time taken for tests:   1.250 seconds
Complete requests:      5000
Failed requests:        3
   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)
Non-2xx responses:      2
Total transferred:      765000 bytes
"""

H2LOAD = """finished in 1.00s, 68600.00 req/s, 3.81MB/s
requests: 68613 total, 68650 started, 68613 done, 68600 succeeded, 13 failed, 0 errored, 0 timeout
status codes: 68600 2xx, 0 3xx, 13 4xx, 0 5xx
traffic: 3.81MB (4000000) total, 1.00MB (1048576) headers (space savings 90.00%), 871.00KB (891904) data
"""

STRACE_TABLE = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.100000          10     10000           sendto
 39.00    0.090000           9     10064        64 recvfrom
  1.00    0.001000           6       160           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.191000           9     20224        64 total
"""

STRACE_LOG = """4711  1795295000.000001 epoll_wait(8, [], 512, -1) = 0
4712  1795295000.500000 futex(0x7f, FUTEX_WAIT, 0, NULL <unfinished ...>
4711  1795295001.250000 recvfrom(9, "GET", 4096, 0, NULL, NULL) = 3
4712  1795295002.000000 <... futex resumed>) = 0
4711  1795295003.000000 --- SIGTERM {si_signo=SIGTERM} ---
"""


class RatiosAndBars(unittest.TestCase):
    def test_a_disturbance_of_both_leaves_the_ratio_alone(self):
        floor = [5.0, 10.0, 5.2, 20.0, 5.1, 5.0, 7.0, 5.0, 5.3, 6.0]
        ratio = paired([value * 1.1 for value in floor], floor)
        for end in (ratio.median, ratio.low, ratio.high):
            self.assertAlmostEqual(end, 1.1)

    def test_one_wild_round_moves_neither_median_nor_low_end(self):
        ratio = paired([1.0] * 9 + [9.0], [1.0] * 10)
        self.assertEqual((ratio.median, ratio.low), (1.0, 1.0))

    def test_the_interval_holds_the_median_and_is_the_same_every_time(self):
        subject, base = [1.0, 1.2, 1.1, 1.4, 0.9, 1.3], [1.0] * 6
        ratio = paired(subject, base)
        self.assertTrue(ratio.low <= ratio.median <= ratio.high)
        self.assertLess(ratio.low, ratio.high)
        self.assertEqual(ratio, paired(subject, base))

    def test_unpaired_rounds_are_rejected(self):
        with self.assertRaises(ValueError):
            paired([1.0], [1.0, 1.0])

    def test_a_bar_is_met_by_the_end_of_the_interval_that_favours_the_server(self):
        at_most, at_least = Bar(1.12, "CPU ÷ floor"), Bar(0.95, "rate", at_least=True)
        self.assertTrue(at_most.met_by(Ratio(1.2, 1.12, 1.3)))
        self.assertFalse(at_most.met_by(Ratio(1.2, 1.13, 1.3)))
        self.assertTrue(at_least.met_by(Ratio(0.9, 0.8, 0.95)))
        self.assertFalse(at_least.met_by(Ratio(0.9, 0.8, 0.94)))
        self.assertTrue(at_most.met_by(1.12))
        self.assertFalse(at_most.met_by(1.121))

    def test_too_few_rounds_give_a_tendency_in_brackets(self):
        ratio = Ratio(1.0, 0.9, 1.1)
        self.assertEqual(judge("s", "encke", Bar(1.12, "x"), ratio, rounds=9).word(), "(met)")
        self.assertEqual(judge("s", "encke", Bar(1.12, "x"), ratio, rounds=10).word(), "met")

    def test_a_twelfth_is_shown_as_a_twelfth(self):
        self.assertEqual(str(Bar(1 / 12, "CPU ÷ nginx")), "CPU ÷ nginx ≤ 1/12")
        self.assertEqual(str(Bar(1_500, "instructions")), "instructions ≤ 1,500")


class WhatToolsPrint(unittest.TestCase):
    def test_wrk(self):
        load = generators.read_wrk('noise\n@ {"requests":100,"bytes":5000,"us":500000,"p50_us":40,"p99_us":0,'
                                   '"errors":2}\n', 0.25)
        self.assertEqual((load.requests, load.bytes, load.seconds, load.errors, load.busy), (100, 5000, 0.5, 2, 0.5))
        self.assertEqual((load.p50_us, load.p99_us), (40, None))

    def test_ab_counts_rejected_requests_as_errors(self):
        load = generators.read_ab(AB, 1.25)
        self.assertEqual((load.requests, load.bytes, load.seconds), (5000, 765000, 1.25))
        self.assertEqual((load.errors, load.busy), (5, 1.0))

    def test_h2load_for_a_time(self):
        load = generators.read_h2load(H2LOAD, 0.5)
        self.assertEqual((load.requests, load.bytes, load.seconds), (68_600, 4_000_000, 1.0))
        self.assertEqual((load.errors, load.busy), (13, 0.5))

    def test_openssl_s_time(self):
        load = generators.read_s_time("No CIPHER specified\nstarting\nrrr*r\n\n5 connections in 0.01s; ", 2, 1)
        self.assertEqual((load.requests, load.seconds, load.errors, load.busy), (4, 2, 1, 0.5))

    def test_callgrind(self):
        self.assertEqual(counts.read_callgrind("==1== Events    : Ir\n==1== Collected : 181962\n"), 181962)

    def test_strace_table_without_its_total(self):
        self.assertEqual(counts.read_strace_summary(STRACE_TABLE),
                         {"sendto": 10000, "recvfrom": 10064, "epoll_wait": 160})

    def test_strace_log_counts_a_call_once_and_signals_never(self):
        self.assertEqual(counts.read_strace_times(STRACE_LOG), [1795295000.000001, 1795295000.5, 1795295001.25])

    def test_missing_output_is_an_error_and_not_a_zero(self):
        for read in (counts.read_callgrind, counts.read_strace_summary, lambda text: generators.read_wrk(text, 0),
                     lambda text: generators.read_ab(text, 0), lambda text: generators.read_h2load(text, 0),
                     lambda text: generators.read_s_time(text, 1, 0)):
            with self.assertRaises(Trouble):
                read("")


class Accounting(unittest.TestCase):
    def test_new_threads_count_and_ended_threads_do_not_count_backwards(self):
        before = Cpu({"1": 100, "2": 50}, {"1": 10, "2": 0})
        after = Cpu({"1": 300, "3": 7}, {"1": 11, "3": 1})
        self.assertEqual(after.since(before), (207, 2))

    def test_own_cpu_time_grows_with_work(self):
        before = machine.cpu(os.getpid())
        while machine.cpu(os.getpid()).since(before)[0] < 1_000_000:
            sum(range(1000))

    def test_large_responses_are_counted_by_bytes_and_small_ones_by_requests(self):
        by_name = {workload.name: workload for workload in timed.WORKLOADS}
        load = generators.Load(10, 25 * servers.MIB64.size // 2, 1.0, 0, 1.0)
        self.assertEqual(by_name["64m"].requests(load), 12.5)
        self.assertEqual(by_name["16k"].requests(load), 10)

    def test_a_listener_is_seen_without_a_connection(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            self.assertFalse(machine.listening(port))
            listener.listen()
            self.assertTrue(machine.listening(port))

    def test_every_template_is_filled_in_completely(self):
        with tempfile.TemporaryDirectory() as scratch:
            for template in ("nginx.conf", "h2o.conf", "lighttpd.conf", "nchan.conf", "encke-push.toml", "gateway-nginx.conf",
                             "gateway-haproxy.cfg", "gateway-haproxy-events.cfg", "gateway-haproxy-large.cfg", "gateway-h2o.conf", "gateway-backend.conf", "encke-gateway.toml",
                             "gateway-php.conf", "gateway-nginx-php.conf", "encke-gateway-php.toml"):
                place = servers.Place(17100, Path(scratch), Path(scratch), servers.HELLO, False,
                                      servers.Programs(Path(), Path()))
                settings = [line for line in servers._fill(template, place).read_text().splitlines()
                            if not line.startswith("#")]
                self.assertNotIn("@", "".join(settings), template)


class Answering:
    """A server for one connection: answers each request by `answer(connection)`, on a thread of its own."""

    def __init__(self, answer):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):
            while connection.recv(4096):
                self._answer(connection)

    def close(self):
        self._thread.join(10)
        self._listener.close()


class AnswersHeldBack(unittest.TestCase):
    HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n"
    BODY = b"Hello, World!"

    def held_back(self, answer) -> int:
        server = Answering(answer)
        run = mock.Mock(port=server.port)
        times = promises.answer_times(run, promises.Ask("13 bytes", (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",)))
        server.close()
        self.assertEqual(len(times), promises.STALL_ANSWERS)
        return sum(seconds >= promises.STALL_SECONDS for seconds in times)

    def test_head_and_body_in_two_writes_are_found(self):
        def apart(connection):
            connection.sendall(self.HEAD)
            connection.sendall(self.BODY)

        self.assertGreater(self.held_back(apart), promises.STALL_ANSWERS // 2)

    def test_one_write_is_usually_not_delayed(self):
        # A busy machine may delay some; Nagle's algorithm would delay nearly all.
        held_back = self.held_back(lambda connection: connection.sendall(self.HEAD + self.BODY))
        self.assertLess(held_back, promises.STALL_ANSWERS // 2)


class Holding(unittest.TestCase):
    def test_held_connections_are_counted_and_closed_ones_are_missed(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            accepted = []

            def serve():
                for _ in range(5):
                    connection, _ = listener.accept()
                    connection.recv(4096)
                    connection.sendall(AnswersHeldBack.HEAD + AnswersHeldBack.BODY)
                    accepted.append(connection)

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            child = subprocess.Popen([sys.executable, holder.__file__, str(listener.getsockname()[1]), "/"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(self.ask(child, "hold 5"), 5)
                thread.join(10)
                self.assertEqual(self.ask(child, "alive"), 5)
                for connection in accepted[:2]:
                    connection.close()
                self.assertEqual(self.ask(child, "alive"), 3)
            finally:
                child.stdin.close()
                child.stdout.close()
                child.wait(10)
                for connection in accepted:
                    connection.close()

    def ask(self, child, command: str) -> int:
        child.stdin.write(f"{command}\n")
        child.stdin.flush()
        return int(child.stdout.readline())


class Crowds(unittest.TestCase):
    """A crowd is a child that answers each line with a line of JSON; here it is `cat` with prepared responses."""

    def crowd(self, *answers: str) -> push.Paced:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(child.communicate)
        child.stdin.write("".join(f"{answer}\n" for answer in answers).encode())
        return push.Paced(child, mock.Mock(server=mock.Mock()))

    def test_a_run_with_faults_has_no_figures(self):
        for wrong in ("lost", "repeated", "closed", "refused"):
            with self.assertRaisesRegex(Trouble, f"7 {wrong} in a run of fan"):
                self.crowd(f'{{"round":"fan","{wrong}":7}}').run()

    def test_a_crowd_that_exits_reports_the_end_of_its_output(self):
        with subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            process = mock.Mock(stdin=mock.Mock(), stdout=child.stdout, last_words=lambda: ": no route")
            with self.assertRaisesRegex(Trouble, "returned no figures: no route"):
                push.Paced(process, mock.Mock(server=mock.Mock())).make_ready()

    def test_cpu_time_is_divided_by_receivers_and_times_are_medians_of_the_runs(self):
        answers = [f'{{"round":"fan","received":100,"first_to_last_ns":{ns}}}' for ns in (10, 50, 20)]
        paced = self.crowd(*(line for answer in answers for line in ('{"ready":true}', answer)))
        entry = push.PushEntry(servers.PushFloor(), run=mock.Mock(pid=1), paced=paced)
        readings = [Cpu({"1": ns}, {"1": 0}) for ns in (0, 600_000)]
        # Each run reads the clock before and after; in between the server becomes idle.
        with mock.patch.object(push, "cpu", mock.Mock(side_effect=readings * 3)), \
                mock.patch.object(push, "_rest", lambda run: None):
            sample = push._sample(push.Crowd("fan", 100, rounds=1, runs=3), entry)
        self.assertEqual((sample["cpu_us"], sample["first_to_last_ns"]), (6.0, 20))


class Agreements(unittest.TestCase):
    def test_figures_are_found_in_the_output_of_both_programs(self):
        witness = {"connect_ns": 5, **{name: {"p50_ns": 7, "p99_ns": 9}
                                       for name in ("first", "first_to_last", "last", "receipt")}}
        load = {"subscribers": {"opening_ns": 5}, "times": {key: witness[key] for key in witness if key != "connect_ns"}}
        theirs = agreement.read(witness, [where for _, where, _ in agreement.FIGURES])
        ours = agreement.read(load, [where for _, _, where in agreement.FIGURES])
        self.assertEqual(ours, theirs)
        self.assertEqual((ours["c"], ours["last, p99"]), (5, 9))
        del load["times"]["first"]
        with self.assertRaisesRegex(Trouble, "no first, p50 at times.first.p50_ns"):
            agreement.read(load, [where for _, _, where in agreement.FIGURES])

    def test_the_distance_of_a_ratio_has_a_minimum_a_median_and_a_maximum(self):
        for ratio, ways in ((Ratio(1.1, 0.8, 1.15), (0.0, 0.1, 0.2)), (Ratio(1.1, 1.06, 1.2), (0.06, 0.1, 0.2)),
                            (Ratio(0.8, 0.7, 0.9), (0.1, 0.2, 0.3)), (Ratio(0.97, 0.96, 1.01), (0.0, 0.03, 0.04))):
            apart = agreement.Apart(ratio)
            for value, expected in zip((apart.value(), apart.likely(), apart.at_most()), ways, strict=True):
                self.assertAlmostEqual(value, expected)

    def test_the_witness_accepts_a_correct_server_and_rejects_repeated_messages(self):
        with tempfile.TemporaryDirectory() as scratch:
            witness = servers.build_floor(Path(scratch) / "witness", "pthread")
            for twice, status in ((False, 0), (True, 1)):
                with Choir(twice) as port:
                    told = subprocess.run([witness, str(port), "/", "/", "-", "3", "4", "200", "127.0.0.3"], capture_output=True,
                                          text=True, check=False, timeout=240)
                self.assertEqual(told.returncode, status, told.stderr)
                if twice:
                    self.assertIn("a message was repeated", told.stderr)
                else:
                    told = json.loads(told.stdout)
                    self.assertEqual(told["received"], 12)
                    # With four messages, 99 % means all four: three would be 75 %.
                    self.assertEqual(told["last"]["p99_ns"], told["last"]["max_ns"])
                    self.assertLess(told["last"]["p50_ns"], told["last"]["max_ns"])

    def test_the_witness_alternates_with_a_leader_that_sends_valid_times(self):
        interval_ns = 1_000_000_000 // 50
        with tempfile.TemporaryDirectory() as scratch:
            witness = servers.build_floor(Path(scratch) / "witness", "pthread")
            for ahead_ns, status in ((-1_000_000, 0), (60_000_000_000, 1)):
                choir = Choir(leader=lambda now, ahead_ns=ahead_ns: now + ahead_ns)
                with choir as port:
                    told = subprocess.run([witness, str(port), "/", "/", "-", "3", "4", "50", "127.0.0.3", "/leader"],
                                          capture_output=True, text=True, check=False, timeout=240)
                self.assertEqual(told.returncode, status, told.stderr)
                ready, _, figures = told.stdout.partition("\n")
                self.assertEqual(ready, "ready")
                if status:
                    self.assertIn("has no valid send time", told.stderr)
                else:
                    self.assertEqual(json.loads(figures)["received"], 12)
                    self.assertGreaterEqual(choir.published_ns, choir.led_ns + interval_ns * 3 // 2)


class Choir:
    """A push server of event streams, on a thread. With `twice` it repeats each message. Its stream /leader sends what `encke
    load push` sends, with the send time that `leader` returns for the current time."""

    def __init__(self, twice: bool = False, leader: Callable[[int], int] = lambda now: now):
        self._twice = twice
        self._leader = leader
        self.led_ns = self.published_ns = 0
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> int:
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self._listener.getsockname()[1]

    def __exit__(self, *_):
        with contextlib.suppress(OSError):  # it is closed already if every client has connected
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.ExitStack() as open_until_the_end:
            open_until_the_end.enter_context(self._listener)
            listeners, publisher = [], None
            while publisher is None:
                try:
                    peer = open_until_the_end.enter_context(self._listener.accept()[0])
                except OSError:
                    return  # no further client connects
                request = peer.recv(4096)
                if request.startswith(b"GET"):
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    if request.startswith(b"GET /leader "):
                        self.led_ns = self._leader(time.monotonic_ns())
                        peer.sendall(b"data: #%08x%04x%08x%016x....\n\n" % (0xABCDEF, 0, 0, self.led_ns))
                    else:
                        listeners.append(peer)
                else:
                    self.published_ns = time.monotonic_ns()
                    publisher = peer
            # The clients may have disconnected, and then nothing more is requested.
            with contextlib.suppress(OSError):
                while request:
                    for message in re.findall(rb"#\d{8}\.+", request):
                        event = b"data: " + message + b"\n\n"
                        for peer in listeners:
                            peer.sendall(event * (1 + self._twice))
                        publisher.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                    request = publisher.recv(4096)


class TimedVerdicts(unittest.TestCase):
    def verdicts(self, workload: timed.Workload, *taking_part: servers.Server) -> list[str]:
        sample = timed.Sample(10.0, 100.0, None, None, 0.0, 0.0, 1.0, 0)
        entries = [timed.Entry(server, samples=[sample] * 10) for server in taking_part]
        section = timed._section(mock.Mock(rounds=10), workload, entries)
        return [f"{verdict.server}: {verdict.bar}" for verdict in section.verdicts]

    def test_bars_apply_to_encke_with_and_without_tls_but_not_to_its_variants(self):
        nginx, encke = (next(server for server in servers.SERVERS if server.name == name and server.scheme == "https")
                        for name in ("nginx", "encke uring"))
        self.assertEqual(self.verdicts(timed.TLS_WORKLOADS[0], nginx, encke), ["encke uring: CPU ÷ nginx ≤ 1"])
        plain = [server for server in servers.SERVERS if server.takes_part("keepalive")]
        judged = self.verdicts(timed.WORKLOADS[0], *plain)
        self.assertEqual(judged, [f"encke {backend}: {bar}" for backend in servers.BACKENDS for bar in timed.WORKLOADS[0].bars])


class PushVerdicts(unittest.TestCase):
    def entry(self, server: servers.Server, cpu_us: float, transport: str = "sse") -> push.PushEntry:
        sample = {name: 1e6 for name in ("first_ns", "p50_ns", "p99_ns", "max_ns", "first_to_last_ns")}
        return push.PushEntry(server, transport=transport, samples=[sample | {"cpu_us": cpu_us, "waited": 0.0}] * 10)

    def verdicts(self, entry: push.PushEntry, alike: list[push.PushEntry], stream: push.PushEntry) -> list[tuple[str, bool]]:
        section = Section("push-fan", "push", "how", [""] * 13)
        push._fan_row(section, mock.Mock(rounds=10), "1,000 SSE", entry, alike, stream)
        self.assertEqual([len(row) for row in section.rows], [13])
        return [(verdict.bar, verdict.met) for verdict in section.verdicts]

    def test_a_stream_is_compared_with_floor_and_nchan(self):
        floor, encke = self.entry(servers.PushFloor(), 6.0), self.entry(servers.Encke("uring"), 6.6)
        nchan = self.entry(next(server for server in servers.SERVERS if server.name == "nchan"), 8.0)
        alike = [floor, nchan, encke]
        self.assertEqual([met for _, met in self.verdicts(encke, alike, encke)], [True, False, True])
        self.assertEqual(self.verdicts(nchan, alike, nchan), [])

    def test_other_transports_are_compared_with_the_same_servers_stream(self):
        server = servers.Encke("uring")
        stream, frames = self.entry(server, 6.0), self.entry(server, 6.5, "ws")
        self.assertEqual(self.verdicts(frames, [frames], stream), [(str(push.TRANSPORT_BARS["ws"]), True)])

    def test_a_server_that_failed_has_missed_its_bars(self):
        encke = self.entry(servers.Encke("uring"), 6.0)
        encke.failure = "encke uring: 3 lost in a run of fan"
        self.assertEqual([met for _, met in self.verdicts(encke, [encke], encke)], [False] * 3)

    def test_push_servers_take_part_in_push_and_the_others_do_not(self):
        for server in servers.SERVERS:
            if set(server.only) & {*servers.GATEWAY, *servers.STREAM}:
                continue
            sections = {section for section in (*servers.PUSH, *servers.TLS, "keepalive", "memory")
                        if server.takes_part(section)}
            self.assertIn(sections, ({"keepalive", "memory"}, {"keepalive"}, set(servers.PUSH), {"push-cycle"},
                                     set(servers.TLS)), server.name)
            self.assertEqual(server.scheme == "https", sections == set(servers.TLS), server.name)
            if sections & set(servers.PUSH):
                self.assertTrue(server.dialect and server.transports, server.name)


class Streams(unittest.TestCase):
    def test_mp3_frames_have_the_rate_and_the_length_that_their_headers_tell(self):
        mp3 = sources.Mp3()
        frames = [mp3.step(number) for number in range(44_100 // 1152 * 60)]
        for frame in frames:
            self.assertEqual(frame[:2], b"\xff\xfb")
            self.assertEqual(len(frame), 417 + (frame[2] >> 1 & 1))
            self.assertNotIn(b"\xff", frame[4:])
        rate = 8 * sum(map(len, frames)) / (len(frames) * mp3.seconds_a_step)
        self.assertAlmostEqual(rate, 128_000, delta=100)
        self.assertEqual(len(set(frames)), len(frames))

    def test_the_transport_stream_has_tables_key_frames_and_the_rate(self):
        media = sources.TransportStream()
        steps = [media.step(number) for number in range(100)]
        stream_bytes = b"".join(steps)
        packets = [stream_bytes[at:at + 188] for at in range(0, len(stream_bytes), 188)]
        self.assertTrue(all(packet[0] == 0x47 and len(packet) == 188 for packet in packets))
        self.assertEqual(packets[0][1:3], b"\x40\0")
        keys = [number for number, packet in enumerate(packets) if packet[1] == 0x41 and packet[5] & 0x40]
        self.assertEqual(len(keys), 2)
        counters = [packet[3] & 15 for packet in packets if packet[1] & 0x1F == 1]
        self.assertEqual(counters, [index & 15 for index in range(len(counters))])
        self.assertAlmostEqual(8 * len(stream_bytes) / 4, 1e6, delta=1e4)
        # The CRC of a section with its check sum is zero, as in the splitter's test.
        self.assertEqual(sources._section(0, 1, b"\0\1\xf0\0"), bytes.fromhex("00b00d0001c100000001f0002ab104b2"))

    def test_a_lost_or_foreign_frame_is_found(self):
        mp3 = sources.Mp3()
        frames = [mp3.step(number) for number in range(100)]
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

        def chunked(parts: list[bytes]) -> bytes:
            return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)

        sent, whole = b"".join(frames), frames[20:90]
        stream.compare("server", chunked(whole) + b"1a1\r\ncut", sent, 0)
        stream.compare("server", chunked([b"p" * 376, *whole]), sent, 376)
        stream.compare("server", head.replace(b"chunked", b"none") + b"".join(whole), sent, 0)
        for wrong in (whole[:10] + whole[11:], whole + whole[-1:], [*whole[:-1], b"x" * 417], [b"p" * 376, *whole], whole[:5],
                      [*whole[:30], whole[31], whole[30], *whole[32:]]):
            with self.assertRaises(Trouble):
                stream.compare("server", chunked(wrong), sent, 0)
        with self.assertRaisesRegex(Trouble, "invalid chunk size"):
            stream.compare("server", head + b"nothing\r\n", sent, 0)

    def test_a_lost_or_late_listener_has_no_figure(self):
        window = {"open": 3, "least": 1_000, "most": 1_000}
        stream.check("server", 3, 1_050, window)
        for wrong, sent in (({"open": 2}, 1_050), ({"least": 900}, 950), ({"most": 1_200}, 1_050), ({}, 2_000)):
            with self.assertRaises(Trouble):
                stream.check("server", 3, sent, window | wrong)

    def test_floor_and_listeners_agree_on_every_byte(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            programs = servers.Programs(Path(), Path(), stream_floor=servers.build_floor(folder / "rawstream", "pthread"),
                                        listeners=servers.build_floor(folder / "listeners", "pthread"))
            core = min(os.sched_getaffinity(0))
            bench = servers.Bench(folder, folder, machine.Cores(core, core), programs, [], 1, 1, True, mock.Mock())
            with bench.running(servers.StreamFloor(10), servers.HELLO) as run, \
                    stream.sending_to(run, sources.Mp3()) as source, stream.listening_to(bench, run) as crowd:
                with source.playing():
                    self.assertEqual(crowd.connect(50, 0, 10)["heard"], 50)
                # On a busy machine the floor may pause within its sends, but not each time.
                for _ in range(10):
                    crowds.settle(run)
                    crowd.window()
                    sent = source.play(1)
                    crowds.settle(run)
                    window = crowd.window()
                    self.assertEqual(window["open"], 50)
                    agrees = window["least"] == window["most"] and abs(sent - window["least"]) < 2 * 418
                    if agrees:
                        break
                self.assertTrue(agrees, f"{window}, {sent} bytes sent")
                stream.compare("floor", crowd.received(), bytes(source.sent), 0)
                run.process.stop()
                with self.assertRaisesRegex(Trouble, "closed 50 of 50"):
                    stream.check("floor", 50, 0, crowd.window())


class Consoles(unittest.TestCase):
    def test_updates_are_counted_across_reads(self):
        events = b"event: overview\ndata: {}\n\nevent: list\ndata: {}\n\n" * 3
        for cut in range(1, len(events)):
            page = console.OpenPage(mock.Mock(recv=mock.Mock(side_effect=[events[:cut], events[cut:], b""])))
            page.run()
            self.assertEqual((page.updates, page.received), (3, len(events)), cut)


class Reports(unittest.TestCase):
    def section(self) -> Section:
        section = Section("keepalive", "13 bytes", "wrk", ["server", "CPU"])
        section.rows = [["encke poll", "5.3"]]
        section.verdicts = [judge("13 bytes", "encke poll", Bar(1.12, "CPU ÷ floor"), Ratio(1.05, 1.01, 1.1))]
        section.failed("encke uring", "no ring", (Bar(1.12, "CPU ÷ floor"),))
        section.failed_row(["encke uring"])
        return section

    def test_the_file_names_met_and_missed_bars_and_the_reason(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "RESULTS.md"
            account = report.Account("bench/run.py --write", "2026-11-21", "0:10", 7, 10, 1, [("kernel", "Linux")], [])
            report.write_results(path, account, [self.section()])
            text = path.read_text()
        self.assertIn("1 of 2 bars met.", text)
        self.assertIn("| 13 bytes | CPU ÷ floor ≤ 1.12 | 1.05 [1.01–1.10] met | failed **missed** |", text)
        self.assertIn("- encke uring: no ring", text)
        self.assertIn("| command | `bench/run.py --write` |", text)

    def test_every_timed_workload_has_a_bar_against_the_floor(self):
        for workload in timed.WORKLOADS:
            self.assertIn("floor", [bar.against for bar in workload.bars], workload.name)


class CommandLine(unittest.TestCase):
    def outcome(self, *arguments: str) -> tuple[int, str]:
        errors = io.StringIO()
        with mock.patch.object(sys, "argv", ["run.py", *arguments]), contextlib.redirect_stderr(errors), \
                contextlib.redirect_stdout(io.StringIO()):
            try:
                return program.main(), errors.getvalue()
            except SystemExit as end:
                return end.code, errors.getvalue()

    def test_the_error_for_an_unknown_name_lists_the_known_ones(self):
        code, text = self.outcome("--only", "keepalife")
        self.assertEqual(code, 1)
        self.assertIn("keepalife", text)
        self.assertIn("keepalive", text)

    def test_a_missing_tool_names_its_package(self):
        with mock.patch.object(servers.shutil, "which", lambda program, path: None if program == "ab" else program):
            code, text = self.outcome("--only", "connect", "--backends", "none")
        self.assertEqual(code, 1)
        self.assertIn("ab is missing: apt install apache2-utils", text)

    def test_the_error_for_a_missing_binary_names_the_build_command(self):
        with mock.patch.object(servers.shutil, "which", lambda program, path: program):
            code, text = self.outcome("--only", "keepalive", "--encke", "/nowhere/encke")
        self.assertEqual(code, 1)
        self.assertIn("cargo build --profile dist", text)

    def test_a_quick_run_cannot_be_written(self):
        self.assertEqual(self.outcome("--quick", "--write")[0], 2)

    def test_the_list_is_the_plan(self):
        self.assertEqual(self.outcome("--list")[0], 0)
        names = [entry.name for entry in program.PLAN]
        self.assertEqual(len(names), len(set(names)))
        variants = {section for server in servers.SERVERS for section in server.only}
        self.assertTrue(variants <= set(names))

    def test_every_measurement_is_written_to_the_page_of_its_kind(self):
        kinds = {"push": "-push", "tls": "-tls", "load": "-load", "cluster": "-cluster", "gateway": "-gateway", "console": "-console",
                 "stream": "-live"}
        for entry in program.PLAN:
            kind = "-agreement" if entry.name == "push-agreement" else kinds.get(entry.name.partition("-")[0], "")
            self.assertEqual(program.page_of(entry.name), f"RESULTS{kind}.md", entry.name)
        self.assertTrue({name for names in program.PAGES.values() for name in names} <= {entry.name for entry in program.PLAN})


if __name__ == "__main__":
    unittest.main()
