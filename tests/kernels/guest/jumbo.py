"""Jumbo frames from one port to another by TC and by XDP in turns, while this machine sends and counts them (load.py).

A driver with mergeable receive buffers, such as virtio_net, delivers such a frame in several buffers: XDP gets it as it is, with
fragments, and TC gets an skb made of them.
"""
import time

from lib import Switch, arguments, check, kernel_complaints, out, sh, until, wires

CONFIGURATION = """hostname sw1
vlan 10
interface range p1 - 2
 switchport access vlan 10
 mtu 9000
 hook tc
mac address-table static 0200.0000.7702 vlan 10 interface p2
"""
ROUNDS, ROUND_S = 7, 8


def forwarded(switch):
    rows = switch.show("interfaces p2").get("interfaces", [])
    return rows[0]["tx"]["frames"] if rows else 0


def main():
    nic = arguments()[0]
    wires(2, hosts=False)
    sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; ip link set p1 up; ip link set p2 up")
    switch = Switch(CONFIGURATION)
    log = switch.start()
    if not check(f"the switch starts with an MTU of 9000 on {nic}", "ready:" in log, log):
        return
    for number in range(ROUNDS):
        for hook in ("tc", "xdp") if number % 2 == 0 else ("xdp", "tc"):
            why = switch.configure("interface range p1 - 2", f"hook {hook}")
            used = until(lambda: set(switch.hooks().values()) == {hook}, 10)
            before = forwarded(switch)
            flows = until(lambda: forwarded(switch) > before + 1000, 20)
            if not check(f"jumbo frames pass by hook {hook} (round {number + 1})", used and flows, why or switch.hooks()):
                continue
            time.sleep(1)
            out(f"measure: begin {hook}")
            time.sleep(ROUND_S)
            out(f"measure: end {hook}")
    out("redirected:", sh("ethtool -S p1 | grep -i xdp_redirects; ethtool -S p2 | grep -i 'xdp_tx'").replace("\n", " "))
    drops = switch.cli("show interfaces counters drops")
    out("drops:", drops.replace("\n", "; "))
    switch.detach()
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
