//! Sends frames through an AF_XDP socket in copy mode: for devices that accept no frames redirected by XDP, and for
//! kernels without live frames. It only sends, so it needs no BPF program.
//!
//! Read first: Documentation/networking/af_xdp.rst. Invariant: a chunk belongs either to this process (`free`) or to
//! the kernel (from its descriptor in the TX ring until its address returns in the completion ring).

#![allow(unsafe_code)]

use anyhow::{Context, Result};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The size of a chunk in bytes: a page, which limits the length of a frame.
pub const CHUNK: usize = 4096;
const CHUNKS: u32 = 2048;
/// Frames between two system calls; the kernel takes 32 at a time.
const KICK: u32 = 32;
/// The longest wait for another socket to release the queue.
const BUSY: Duration = Duration::from_secs(1);

/// Memory shared with the kernel.
struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is the process's, at the same address in every thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: i32, length: usize, offset: i64, flags: i32) -> std::io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe { libc::mmap(null_mut(), length, access, flags, fd, offset) };
        match NonNull::new(at.cast::<u8>()) {
            Some(at) if at.as_ptr().cast::<libc::c_void>() != libc::MAP_FAILED => Ok(Self { at, length }),
            _ => Err(Error::last_os_error()),
        }
    }

    /// The `u32` at an offset that the kernel has reported.
    fn word(&self, offset: u64) -> &AtomicU32 {
        assert!(offset as usize + 4 <= self.length && offset.is_multiple_of(4));
        // SAFETY: inside the mapping and aligned, just checked; it lives as long as the reference.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset as usize).cast()) }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: inside the mapping, just checked; the kernel does not touch chunks of this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(offset), bytes.len()) };
    }

    fn read_u64(&self, offset: usize) -> u64 {
        assert!(offset + 8 <= self.length);
        // SAFETY: inside the mapping, just checked.
        unsafe { self.at.as_ptr().add(offset).cast::<u64>().read_unaligned() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and no references to it are left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}

struct Ring {
    mapping: Mapping,
    producer: u64,
    consumer: u64,
    entries: usize,
}

impl Ring {
    fn map(fd: &OwnedFd, offset: libc::xdp_ring_offset, page: i64, entry: usize) -> Result<Self> {
        let length = offset.desc as usize + CHUNKS as usize * entry;
        let mapping = Mapping::new(fd.as_raw_fd(), length, page, libc::MAP_SHARED | libc::MAP_POPULATE)
            .context("mapping a ring")?;
        let (producer, consumer, entries) = (offset.producer, offset.consumer, offset.desc as usize);
        Ok(Self { mapping, producer, consumer, entries })
    }
}

/// An AF_XDP socket that sends at the first queue of a device.
pub struct XdpSocket {
    tx: Ring,
    completion: Ring,
    umem: Mapping,
    free: Vec<u64>,
    unkicked: u32,
    socket: OwnedFd,
}

impl XdpSocket {
    /// Opens a socket at a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, without AF_XDP in the kernel, or when another socket has the queue.
    pub fn new(ifindex: u32) -> Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last_os_error()).context("an AF_XDP socket");
        }
        // SAFETY: a descriptor that the call just returned, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = CHUNKS as usize * CHUNK;
        let umem = Mapping::new(-1, length, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE)
            .context("memory for frames")?;
        let mut area = [0u64; 4];
        area[..3].copy_from_slice(&[umem.at.as_ptr() as u64, length as u64, CHUNK as u64]);
        // struct xdp_umem_reg: address, length, chunk size and headroom (u32 each), flags.
        set(&socket, libc::XDP_UMEM_REG, &area).context("AF_XDP memory")?;
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, 64),
            (libc::XDP_UMEM_COMPLETION_RING, CHUNKS),
            (libc::XDP_TX_RING, CHUNKS),
        ] {
            set(&socket, ring, &entries).context("AF_XDP rings")?;
        }
        let offsets = offsets(&socket)?;
        let tx = Ring::map(&socket, offsets.tx, libc::XDP_PGOFF_TX_RING, 16)?;
        let completion = Ring::map(&socket, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64, 8)?;
        bind(&socket, ifindex)?;
        let free = (0..u64::from(CHUNKS)).map(|n| n * CHUNK as u64).collect();
        Ok(Self { tx, completion, umem, free, unkicked: 0, socket })
    }

    /// Queues a frame. The kernel is notified of every 32nd, or by [`Self::kick`].
    ///
    /// # Errors
    /// `WouldBlock` when the device has not sent enough of the earlier frames yet.
    pub fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        if frame.len() > CHUNK {
            return Err(Error::from_raw_os_error(libc::EMSGSIZE));
        }
        if self.free.is_empty() {
            self.kick()?;
            self.reap();
        }
        let address = self.free.pop().ok_or(ErrorKind::WouldBlock)?;
        self.umem.write(address as usize, frame);
        let producer = self.tx.mapping.word(self.tx.producer);
        let index = producer.load(Ordering::Relaxed);
        let mut descriptor = [0u8; 16];
        descriptor[..8].copy_from_slice(&address.to_ne_bytes());
        descriptor[8..12].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        let at = self.tx.entries + (index % CHUNKS) as usize * 16;
        self.tx.mapping.write(at, &descriptor);
        // Publish the index only after the descriptor has been written.
        producer.store(index.wrapping_add(1), Ordering::Release);
        self.unkicked += 1;
        if self.unkicked >= KICK { self.kick() } else { Ok(()) }
    }

    /// Makes the kernel send the queued frames.
    ///
    /// # Errors
    /// When the device is down.
    pub fn kick(&mut self) -> std::io::Result<()> {
        self.unkicked = 0;
        // SAFETY: no buffer: the frames are in the ring.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        let why = Error::last_os_error();
        match why.raw_os_error() {
            _ if sent >= 0 => Ok(()),
            // More frames are queued than the kernel takes at a time; the next call sends the rest.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => Ok(()),
            _ => Err(why),
        }
    }

    fn reap(&mut self) {
        let producer = self.completion.mapping.word(self.completion.producer).load(Ordering::Acquire);
        let consumer = self.completion.mapping.word(self.completion.consumer);
        let mut index = consumer.load(Ordering::Relaxed);
        while index != producer {
            let at = self.completion.entries + (index % CHUNKS) as usize * 8;
            self.free.push(self.completion.mapping.read_u64(at));
            index = index.wrapping_add(1);
        }
        consumer.store(index, Ordering::Release);
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> std::io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives through the call, and the length is its size.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn offsets(socket: &OwnedFd) -> Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&offsets) as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (&raw mut offsets).cast());
    // SAFETY: value and length live through the call, and the length is the value's size.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, value, &raw mut length) };
    if done == 0 { Ok(offsets) } else { Err(Error::last_os_error()).context("AF_XDP offsets") }
}

fn bind(socket: &OwnedFd, ifindex: u32) -> Result<()> {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
    address.sxdp_family = libc::AF_XDP as u16;
    address.sxdp_flags = libc::XDP_COPY;
    address.sxdp_ifindex = ifindex;
    let length = size_of_val(&address) as libc::socklen_t;
    let begin = Instant::now();
    loop {
        // SAFETY: the address lives through the call, and `length` is its size.
        let done = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        let why = Error::last_os_error();
        match why.raw_os_error() {
            _ if done == 0 => return Ok(()),
            // The kernel needs some time to close the socket that had the queue before.
            Some(libc::EBUSY) if begin.elapsed() < BUSY => std::thread::sleep(Duration::from_millis(5)),
            _ => return Err(why).context("AF_XDP at the first queue"),
        }
    }
}
