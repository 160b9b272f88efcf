#!/usr/bin/env python3
"""Tests how tools/gpu_check.py judges processes, finds the cure of a failure, and shortens a
digest."""
import contextlib
import io
import os
import pathlib
import sys
import tarfile
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import gpu_check
import gpu_report
import gpu_smoke
import gpu  # of bench/peers, which gpu_check adds to the path

COUNTS = "test cases: 2 | 2 passed\n[doctest] assertions: 7 | 7 passed |\n"


def shell(text, limit=20):
    return gpu_check.Job(["sh", "-c", text]).run(limit)


class Judging(unittest.TestCase):
    def test_assertions_are_counted(self):
        job = shell(f"printf '{COUNTS}'")
        self.assertEqual(gpu_check.judged([job, job]), ("passed", "14 assertions"))

    def test_time_that_ran_out_is_no_failure(self):
        good, late = shell(f"printf '{COUNTS}'"), shell("sleep 5", limit=1)
        self.assertEqual(gpu_check.judged([good, late]),
                         ("out of time", "1 of 2 processes did not end"))

    def test_a_failure_counts_beside_time_that_ran_out(self):
        late, bad = shell("sleep 5", limit=1), shell("exit 1")
        self.assertEqual(gpu_check.judged([late, bad])[0], "failed")

    def test_a_process_that_is_killed_has_failed(self):
        self.assertEqual(gpu_check.judged([shell("kill -9 $$")])[0], "failed")

    def test_no_test_is_a_failure(self):
        self.assertEqual(gpu_check.judged([shell("true")])[0], "failed")
        nothing = "test cases: 0 |\n[doctest] assertions: 0 |\n"
        self.assertEqual(gpu_check.judged([shell(f"printf '{nothing}'")]), ("failed", "no test ran"))

    def test_a_skip_says_why(self):
        said = "skipped: no libcuda\ntest cases: 1 |\n[doctest] assertions: 0 |\n"
        self.assertEqual(gpu_check.judged([shell(f"printf '{said}'")]), ("skipped", "no libcuda"))

    def test_a_rung_that_the_budget_cuts_is_out_of_time_and_one_that_hangs_has_failed(self):
        def climb(budget):
            ladder = gpu_smoke.Ladder(types.SimpleNamespace(
                rung="rung", device="cuda", small=False, seconds=15, budget=budget, jobs=1))
            ladder.explain = lambda name: None
            with mock.patch.object(gpu_smoke, "run", lambda *_: (124, "")):
                return ladder.climb("copy")["state"]
        self.assertEqual([climb(budget) for budget in (1, 10, 100)],
                         ["out of time", "out of time", "failed"])

    def test_a_visit_that_reaches_its_limit_is_out_of_time_and_one_that_is_killed_has_failed(self):
        check = object.__new__(gpu.Check)
        check.end, check.failed = gpu.time.monotonic() + 100, []
        with mock.patch.object(gpu, "LEAST", 1), contextlib.redirect_stdout(io.StringIO()):
            late = check.call(["sleep", "5"], 1)
            check.say("GPT-2", "compile", late)
            self.assertEqual((gpu.milliseconds(late), check.failed), (gpu.OUT_OF_TIME, []))
            check.say("GPT-2", "weft", check.call(["sh", "-c", "kill -9 $$"], 20))
        self.assertEqual(check.failed, ["GPT-2, weft: exit -9: printed nothing"])

    def test_a_program_that_stops_by_itself_before_its_end_is_out_of_time(self):
        check = object.__new__(gpu_check.Check)
        check.limit = lambda seconds: seconds
        last = {"libraries: 9 of 9 shapes in 5 s": "passed",
                "libraries: 3 of 9 shapes in 60 s (out of time)": "out of time",
                "smoke: 3 of 5 rungs passed, 0 failed, 2 out of time": "out of time"}
        for text, state in last.items():
            self.assertEqual(check.one("", ["echo", text], 20)[1:], (state, text))
        self.assertEqual(check.one("", ["sh", "-c", "echo 1 out of time; exit 1"], 20)[1], "failed")

    def test_counters_are_skipped_aloud_where_ncu_is_not(self):
        check = object.__new__(gpu_check.Check)
        check.report = mock.Mock()
        with (mock.patch.object(gpu_check, "DEVICE", "cuda"),
              mock.patch.object(gpu_check.shutil, "which", lambda program: None)):
            check.hardware_counters()
        check.report.add.assert_called_once_with("hardware counters (ncu)", "skipped",
                                                 "ncu is not in PATH", 0)


    def test_counters_that_nobody_may_read_are_skipped_with_what_ncu_says(self):
        said = {'==PROF== Connected\n"ID","Process ID"\n"","Mbyte"\n"0","42"\n"1","42"\n':
                ("passed", "kernels in ncu.csv: 2"),
                '{"median_ms":1}\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n':
                ("skipped", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"),
                '{"median_ms":1}\n': ("skipped", "ncu profiled no kernel")}
        for output, found in said.items():
            with tempfile.TemporaryDirectory() as folder:
                check = object.__new__(gpu_check.Check)
                check.report, check.logs = mock.Mock(), pathlib.Path(folder)
                job = types.SimpleNamespace(output=output, seconds=1)
                check.one = lambda *_, **__: (job, "passed", output.splitlines()[-1])
                with (mock.patch.object(gpu_check, "DEVICE", "cuda"),
                      mock.patch.object(gpu_check.shutil, "which", lambda program: program)):
                    check.hardware_counters()
                self.assertEqual(check.report.add.call_args.args[1:3], found)
                self.assertEqual((check.logs / "ncu.csv").read_text(), output)


class Cures(unittest.TestCase):
    def find(self, text):
        check = object.__new__(gpu_check.Check)
        return check.find_cure([shell(text)])

    def test_the_switch_that_cures_is_named(self):
        self.assertEqual(self.find('test "$WEFT_CUDA_OFF" = epilogues'),
                         "cured by WEFT_CUDA_OFF=epilogues")

    def test_none_may_cure(self):
        self.assertEqual(self.find("exit 1"), "no switch cures it")

    def test_switches_that_were_not_tried_to_the_end_are_named(self):
        check = object.__new__(gpu_check.Check)
        check.limit = lambda seconds: 1
        found = check.find_cure([shell('test -n "$WEFT_CUDA_OFF" && sleep 5; exit 1')])
        self.assertTrue(found.startswith("no switch is known to cure it (graphs, "), found)


    def test_losses_that_are_apart_are_cured_by_a_switch(self):
        check = object.__new__(gpu.Check)
        check.args = types.SimpleNamespace(small=False)
        wrong = {"losses": [4.0, 3.5]}
        check.weft = lambda row, *flags, extra: (
            {"losses": [4.0, 3.0]} if extra == {"WEFT_CUDA_OFF": "padding"} else wrong)
        row, theirs = gpu.ROWS["gpt2"], {"losses": [4.0, 3.0]}
        self.assertGreater(check.distance(wrong, theirs), row.loss_off)
        self.assertEqual(check.find_cure(row, theirs), "cured by WEFT_CUDA_OFF=padding")
        check.weft = lambda row, *flags, extra: {"error": gpu.OUT_OF_TIME}
        self.assertEqual(check.find_cure(row, theirs),
                         "cured by none of 0 switches (8 were not tried)")


class Threads(unittest.TestCase):
    def test_processes_at_once_share_the_cores(self):
        jobs = [gpu_check.Job(["sh", "-c", "echo $WEFT_THREADS"]) for _ in range(3)]
        gpu_check.run_all(jobs, 20, at_once=2)
        self.assertEqual({job.output.strip() for job in jobs}, {str(max(1, gpu_check.CORES // 2))})


class Time(unittest.TestCase):
    def test_parts_that_take_all_they_may_leave_the_later_ones_their_share(self):
        now, ends = 0.0, []

        def run(job, limit, threads=1):
            nonlocal now
            now += max(limit, 0)
            job.code, job.timed_out = 124, True
            return job

        with (tempfile.TemporaryDirectory() as folder,
              mock.patch.object(gpu_check, "DEVICE", "cuda"),
              mock.patch.object(gpu_check, "OUT", pathlib.Path(folder)),
              mock.patch.object(gpu_check, "SCALE", 1),
              mock.patch.object(gpu_check, "END", gpu_check.BUDGET),
              mock.patch.object(gpu_check, "run_all", lambda jobs, limit: [
                  run(job, limit / len(jobs)) for job in jobs]),
              mock.patch.object(gpu_check.Job, "run", run),
              mock.patch.object(gpu_check.time, "monotonic", lambda: now),
              mock.patch.object(gpu_check.shutil, "which", lambda program: program),
              contextlib.redirect_stdout(io.StringIO())):
            check = object.__new__(gpu_check.Check)
            check.logs = check.cache = pathlib.Path(folder) / "cache"
            check.cache.mkdir()
            check.report = mock.Mock()
            check.report.add = lambda name, *_: ends.append((name, now))
            check.run([])
        self.assertLessEqual(now, gpu_check.BUDGET)
        took = {name: round(end - before, 3) for (name, end), (_, before) in zip(ends, [("", 0), *ends])}
        for part, first in {"first-row": "GPT-2 beside PyTorch", "counters": "hardware counters (ncu)", "tuned": "tuned",
                            "tests": "training, f32 and bf16"}.items():
            self.assertGreaterEqual(took[first], gpu_check.KEPT[part], took)
        for part, halves in {"tests-alone": ("offload and results", "memory as planned"),
                             "profile": ("profile of gpt2", "profile of resnet50")}.items():
            for half in halves:
                self.assertGreaterEqual(took[half], gpu_check.KEPT[part] / 2, took)


class Digest(unittest.TestCase):
    def test_it_is_short_whatever_happened(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            report = gpu_report.Report(out, pathlib.Path(folder) / "logs", "cuda")
            wrong = shell("echo error: something is wrong; exit 1")
            with contextlib.redirect_stdout(io.StringIO()):
                for i in range(60):
                    report.add(f"part {i}", "failed", "x" * 500, 1, [wrong])
                    report.section(f"section {i}", "y" * 5000)
            report.pack()
            report.log.close()
            digest = (out / "digest.txt").read_text()
            self.assertLessEqual(len(digest), gpu_report.MOST_DIGEST)
            self.assertIn("failed: part 0", digest)
            self.assertIn("characters more", digest)
            self.assertTrue((out / "gpu-check-logs.tar.xz").exists())

    def packed(self, sizes):
        """Returns (archived files of noise, which does not compress; the digest)."""
        with (tempfile.TemporaryDirectory() as folder,
              mock.patch.object(gpu_report, "MOST_ARCHIVE", 100_000)):
            folder = pathlib.Path(folder)
            report = gpu_report.Report(folder / "out", folder / "logs", "cuda")
            for name, size in sizes.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(os.urandom(size))
            report.write()
            report.pack([folder / "refused", folder / "kernels"])
            report.log.close()
            archive = folder / "out" / "gpu-check-logs.tar.xz"
            self.assertLessEqual(archive.stat().st_size, 100_000)
            with tarfile.open(archive) as tar:
                names = {member.name for member in tar if member.isfile()}
            return names & sizes.keys(), (folder / "out" / "digest.txt").read_text()

    def test_the_archive_is_small_enough_to_come_back_whatever_was_logged(self):
        self.assertLessEqual(gpu_report.MOST_ARCHIVE, 16 << 20)
        few, many = 20_000, 90_000
        for refused, kernels, left_out in ((few, few, set()), (few, many, {"kernels/c"}),
                                           (many, few, {"refused/b", "kernels/c"})):
            sizes = {"logs/a": few, "refused/b": refused, "kernels/c": kernels}
            self.assertEqual(self.packed(sizes)[0], sizes.keys() - left_out)

    def test_of_logs_that_are_too_large_the_largest_are_left_out_and_named(self):
        sizes = {"logs/a": 20_000, "logs/b": 90_000, "logs/c": 60_000, "logs/d": 130_000}
        names, digest = self.packed(sizes)
        self.assertEqual(names, {"logs/a", "logs/c"})
        self.assertIn("no room for\nd: 130,000 bytes\nb: 90,000 bytes\n", digest)

    def test_shapes_whose_first_choice_loses_most_come_first(self):
        lines = ['{"shape":"a","rank":0,"us":5.0}', '{"shape":"a","rank":1,"us":4.0}', "other",
                 '{"shape":"b","rank":0,"us":5.0}', '{"shape":"b","rank":1,"us":2.5}',
                 '{"shape":"c","error":"no engine"}',
                 '{"shape":"d","rank":0,"us":5.0}',
                 '{"shape":"d","rank":0,"us":4.0,"against_rules":"is none of those"}',
                 '{"shape":"a","rank":2,"engine":7,"us":3.0,"against_rules":"is nondeterministic"}',
                 '{"shape":"b","rank":2,"engine":8,"us":4.0,"against_rules":"sums narrowly"}']
        self.assertEqual(gpu_check.summary_of_libraries("\n".join(lines)).splitlines(),
                         ["c: no engine", "      5.0       2.5 us, rank 1 of 3  b",
                          "      5.0       4.0 us, rank 1 of 3  a; 3.0 us by engine 7, which is "
                          "nondeterministic",
                          "      5.0       5.0 us, rank 0 of 2  d; 4.0 us by an algorithm, which is "
                          "none of those"])


class Ceilings(unittest.TestCase):
    def test_they_are_of_the_gpu_that_is_there(self):
        ceiling_of = gpu.ceiling_of
        self.assertEqual(ceiling_of("NVIDIA H100 80GB HBM3").bandwidth, 3.0e12)
        self.assertEqual(ceiling_of("NVIDIA H200").bandwidth, 4.3e12)
        self.assertIsNone(ceiling_of("NVIDIA T4"))

    def test_a_floor_is_of_memory_or_of_arithmetic(self):
        self.assertAlmostEqual(gpu.H200.floor_ms({"bf16": 790e9}, 4.3e9), 1)
        self.assertAlmostEqual(gpu.H200.floor_ms({"bf16": 790e9}, 8.6e9), 2)


if __name__ == "__main__":
    unittest.main(verbosity=0)
