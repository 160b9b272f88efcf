"""The results of tools/gpu_check.py: a table, a digest, JSON, and one archive of logs."""
import json
import pathlib
import tarfile
import time

MOST_DIGEST = 10_000  # characters
MOST_ARCHIVE = 15_000_000  # bytes
PASSED, FAILED, SKIPPED, OUT_OF_TIME = "passed", "failed", "skipped", "out of time"


def shortened(text, most):
    """Keeps the beginning and end, and states the length of the omitted text between."""
    if len(text) <= most:
        return text
    gap = f"\n... {len(text) - most:,} characters more are in the archive ...\n"
    head = max(0, (most - len(gap)) * 2 // 3)
    tail = max(0, most - len(gap) - head)
    return text[:head] + gap + text[len(text) - tail:]


def shortened_line(text, most=110):
    return text if len(text) <= most else text[:most // 2 - 2] + " ... " + text[-(most // 2 - 3):]


def excerpt(output, most=450):
    """Returns the lines of a process's output that mention errors, else the last ones."""
    lines = output.splitlines()
    marks = ("error", "Error", "ERROR", "[cuda]", "assert", "Sanitizer", "CHECK(", "failed  ")
    chosen = [line for line in lines if any(mark in line for mark in marks)] or lines[-8:]
    return shortened("\n".join(line[:300] for line in chosen[:12]), most)


def archived(archive, folders, without=()):
    """Creates an archive of these folders; returns its bytes."""
    with tarfile.open(archive, "w:xz", preset=1) as packed:
        for folder in filter(pathlib.Path.exists, folders):
            left_out = {f"{folder.name}/{path.relative_to(folder)}" for path in without}
            packed.add(folder, arcname=folder.name,
                       filter=lambda member: None if member.name in left_out else member)
    return archive.stat().st_size


class Report:
    def __init__(self, out, logs, device):
        self.out, self.logs, self.device = out, logs, device
        self.rows, self.sections, self.failures = [], {}, []
        self.began = time.monotonic()
        for folder in (out, logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.log = open(logs / "gpu-check.log", "w")

    def add(self, name, state, text, seconds, jobs=()):
        self.rows.append({"part": name, "state": state, "text": text, "seconds": round(seconds, 1)})
        print(f"{state:11} {seconds:6.1f} s  {name}: {text}", flush=True)
        for job in jobs:
            self.log.write(f"\n==== {name}: exit {job.code}, {job.seconds:.1f} s: {job.in_words()}\n"
                           f"{job.output}")
            if job.code != 0 and not job.timed_out:
                self.failures.append(f"{name}: exit {job.code}: {job.in_words()}\n"
                                     f"{excerpt(job.output)}")
                print("\n".join("    " + line for line in job.output.splitlines()[-15:]), flush=True)
        self.write()

    def section(self, title, text, most=1000):
        """Adds a section to the digest below the table, in order of calls."""
        self.sections[title] = shortened(text.strip(), most)
        self.write()

    def write(self):
        """Writes after each part, so that results survive a later failure."""
        self.log.flush()
        (self.out / "gpu-check.json").write_text(json.dumps(
            {"device": self.device, "parts": self.rows}, indent=1) + "\n")
        (self.out / "digest.txt").write_text(self.digest())

    def table(self):
        return "\n".join(f"{row['state']:11} {row['seconds']:4.0f} s  {row['part']}: "
                         f"{shortened_line(row['text'])}" for row in self.rows)

    def verdict(self):
        named = {state: [row["part"] for row in self.rows if row["state"] == state]
                 for state in (FAILED, OUT_OF_TIME)}
        text = f"failed: {', '.join(named[FAILED])}" if named[FAILED] else "nothing failed"
        if named[OUT_OF_TIME]:
            text += f"; out of time: {', '.join(named[OUT_OF_TIME])}"
        return f"gpu-check on {self.device}, {time.monotonic() - self.began:.0f} s: {text}"

    def digest(self):
        parts = [shortened(self.verdict(), 300), self.table()]
        if self.failures:
            parts.append("== failures\n" + shortened("\n".join(self.failures), 1800))
        parts += [f"== {title}\n{text}" for title, text in self.sections.items()]
        return shortened("\n\n".join(parts) + "\n", MOST_DIGEST)

    def pack(self, more=()):
        """Packs logs, then `more` (refused sources, cubins) while there is room for them. If the
        logs themselves are too large, the largest are left out, which the digest states."""
        archive = self.out / "gpu-check-logs.tar.xz"
        self.log.flush()
        for folders in ([self.logs, *more], [self.logs, *more[:1]], [self.logs]):
            if archived(archive, folders) <= MOST_ARCHIVE:
                return
        left_out = []
        largest_first = sorted(filter(pathlib.Path.is_file, self.logs.rglob("*")),
                               key=lambda path: -path.stat().st_size)
        while largest_first and archived(archive, [self.logs], left_out) > MOST_ARCHIVE:
            left_out.append(largest_first.pop(0))
        self.section("logs that the archive has no room for",
                     "\n".join(f"{path.relative_to(self.logs)}: {path.stat().st_size:,} bytes"
                               for path in left_out))

    def end(self):
        self.write()
        print("\n" + self.digest())
        print(f"All of it is in {self.out}")
        return 1 if any(row["state"] == FAILED for row in self.rows) else 0
