#!/bin/sh
# Process 1 of the initial RAM disk: mounts the machine's root (9p, read-only) below an overlay in memory and goes there.
b=/bin/busybox
for d in proc sys dev; do $b mkdir -p /$d; done
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do $b insmod "$module" || echo "guest: insmod $module failed"; done
share() { # TAG DIRECTORY MODE
    $b mkdir -p "$2"
    $b mount -t 9p -o "$3,trans=virtio,version=9p2000.L,cache=loose,msize=512000" "$1" "$2" ||
        { echo "guest: the share $1 cannot be mounted"; echo o >/proc/sysrq-trigger; $b sleep 60; }
}
share root /lower ro
$b mkdir -p /memory /new
$b mount -t tmpfs tmpfs /memory
$b mkdir -p /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/memory/upper,workdir=/memory/work overlay /new
for d in run tmp mnt var/lib/lanyard; do
    $b mkdir -p /new/$d
    $b mount -t tmpfs tmpfs /new/$d
done
share kernels /new/mnt/kernels ro
share cache /new/mnt/cache ro
$b mkdir -p /new/lib/modules
$b mount --bind /new/mnt/cache/modules /new/lib/modules
for d in proc sys dev; do
    $b mkdir -p /new/$d
    $b mount --move /$d /new/$d
done
$b mkdir -p /new/dev/pts /new/dev/shm
$b mount -t devpts devpts /new/dev/pts
exec $b switch_root /new /bin/sh /mnt/kernels/guest/init
