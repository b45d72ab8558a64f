"""The load of the script `jumbo`: jumbo frames into the guest's p1 by a TAP netdev of this machine, counted where they come out at p2.

The guest prints `measure: begin NAME` and `measure: end NAME` around each round. The round's figure is the number of frames that
come out for each second of processor time that QEMU's emulated processors have used: this machine may do other work, so a
rate would measure that.
"""
import os
import socket
import statistics
import subprocess
import sys
import time

FRAME_BYTES = 9014
# The offered load: BATCH frames each millisecond.
BATCH = 24
DESTINATION, SOURCE = bytes([2, 0, 0, 0, 0x77, 2]), bytes([2, 0, 0, 0, 0x77, 1])


class Load:
    """Runs with a guest: `start` before it boots, `line` for each line of its console, `stop` when it has ended."""

    def __init__(self):
        self.namespace, self.process, self.guest, self.began, self.rates = None, None, None, None, {}

    def start(self, namespace):
        self.namespace = namespace
        # A TAP netdev has no carrier until QEMU opens it: frames are refused until then.
        self.process = subprocess.Popen(["ip", "netns", "exec", namespace, sys.executable, __file__, "b1"])

    def line(self, text):
        words = text.split()
        if words[:2] == ["measure:", "begin"]:
            self.began = self._now()
        elif words[:2] == ["measure:", "end"] and self.began:
            seconds, processor_s, forwarded, offered = (now - then for now, then in zip(self._now(), self.began))
            rate = forwarded / max(processor_s, 0.01)
            self.rates.setdefault(words[2], []).append(rate)
            print(f"  {words[2]}: {rate:.0f} frames of {FRAME_BYTES} bytes for each second of processor time; {forwarded / seconds:.0f} "
                  f"frames/s forwarded of {offered / seconds:.0f}", flush=True)
            self.began = None

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def summary(self):
        """The ratio of the medians, XDP against TC, and the lowest and highest ratio of two rounds in turn."""
        tc, xdp = self.rates.get("tc", []), self.rates.get("xdp", [])
        if not tc or not xdp or not statistics.median(tc):
            return None
        ratios = [fast / slow for slow, fast in zip(tc, xdp) if slow]
        return (f"jumbo frames, XDP : TC = {statistics.median(xdp) / statistics.median(tc):.2f} "
                f"({statistics.median(xdp):.0f} and {statistics.median(tc):.0f} frames for each second of processor time, medians of "
                f"{len(tc)} rounds; "
                f"single rounds {min(ratios):.2f} to {max(ratios):.2f})")

    def _now(self):
        """Time, the processor time of the emulated processors, frames forwarded, frames offered."""
        ticks = 0
        for thread in os.listdir(f"/proc/{self.guest}/task"):
            # The first thread carries the frames to and from the TAP netdevs.
            if int(thread) == self.guest:
                continue
            try:
                with open(f"/proc/{self.guest}/task/{thread}/stat", encoding="ascii") as file:
                    # The name, which may have blanks, is in parentheses; utime and stime are fields 14 and 15 (proc(5)).
                    fields = file.read().rpartition(")")[2].split()
            except FileNotFoundError:
                # A helper thread has ended; the emulated processors' threads do not.
                continue
            ticks += int(fields[11]) + int(fields[12])
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), self._counted("b2", "rx_packets"), self._offered()

    def _offered(self):
        # Frames for which the guest was too slow wait at the TAP netdev, and are dropped there.
        return self._counted("b1", "tx_packets") + self._counted("b1", "tx_dropped")

    def _counted(self, netdev, name):
        path = f"/sys/class/net/{netdev}/statistics/{name}"
        done = subprocess.run(["ip", "netns", "exec", self.namespace, "cat", path], stdout=subprocess.PIPE, text=True, check=True)
        return int(done.stdout)


def main():
    """Sends frames out of a netdev until it is ended."""
    frame = DESTINATION + SOURCE + b"\x88\xb5" + bytes(FRAME_BYTES - 14)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((sys.argv[1], 0))
        due = time.monotonic()
        while True:
            for _ in range(BATCH):
                try:
                    raw.send(frame)
                except OSError:
                    # No carrier yet, or the queue is full.
                    break
            due = max(due + 0.001, time.monotonic() - 0.01)
            time.sleep(max(0, due - time.monotonic()))


if __name__ == "__main__":
    main()
