//! Frames to be sent from a packet socket, many with one system call: sendmmsg(2).
//!
//! A call for each frame costs more than the pipeline does. Invariant: frames are sent in the order
//! in which they were added. Each is either sent or reported as refused, never both.

#![allow(unsafe_code)]

use super::vnet::{HEADER_LEN, Offload};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames per call: few enough that the first does not wait long for the last.
const FRAMES: usize = 32;
/// The longest frame that is batched, in bytes. For a longer one, the cost of its own call is small
/// in comparison.
const LONGEST: usize = 2048;

/// Frames that wait to be sent.
#[derive(Debug, Default)]
pub struct Batch {
    /// The frames, each preceded by its virtio_net_hdr.
    bytes: Vec<u8>,
    /// The end of each frame in `bytes`.
    ends: Vec<usize>,
    /// Lengths of the refused frames, without their headers.
    refused: Vec<usize>,
}

impl Batch {
    /// True for a frame that can be batched.
    pub fn takes(frame: &[u8]) -> bool {
        frame.len() <= LONGEST
    }
    /// True while frames wait.
    pub fn waits(&self) -> bool {
        !self.ends.is_empty()
    }
    /// Adds a frame, and sends all frames when the batch is full.
    pub fn push(&mut self, socket: &OwnedFd, frame: &[u8], offload: Offload) {
        self.bytes.extend_from_slice(&offload.to_bytes());
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
        if self.ends.len() >= FRAMES {
            self.send(socket);
        }
    }
    /// Sends the waiting frames; returns the lengths of the frames refused since the last call.
    pub fn flush(&mut self, socket: &OwnedFd) -> Vec<usize> {
        self.send(socket);
        std::mem::take(&mut self.refused)
    }
    /// Sends the waiting frames.
    pub fn send(&mut self, socket: &OwnedFd) {
        match self.ends.as_slice() {
            [] => return,
            // On a quiet link each batch has one frame, for which preparing 32 messages would be
            // wasted.
            [end] => {
                // SAFETY: the bytes live through the call, which only reads them.
                let sent = unsafe {
                    libc::send(socket.as_raw_fd(), self.bytes.as_ptr().cast(), *end, libc::MSG_DONTWAIT)
                };
                if sent < 0 {
                    self.refused.push(end - HEADER_LEN);
                }
            }
            _ => self.send_many(socket),
        }
        self.bytes.clear();
        self.ends.clear();
    }

    fn send_many(&mut self, socket: &OwnedFd) {
        let count = self.ends.len();
        // SAFETY: iovec is plain data, for which zeros are valid.
        let mut parts: [libc::iovec; FRAMES] = unsafe { zeroed() };
        // SAFETY: as above, for mmsghdr.
        let mut messages: [libc::mmsghdr; FRAMES] = unsafe { zeroed() };
        let mut start = 0;
        for ((end, part), message) in self.ends.iter().zip(&mut parts).zip(&mut messages) {
            let bytes = &mut self.bytes[start..*end];
            *part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            start = *end;
        }
        let mut at = 0;
        while at < count {
            let left = &mut messages[at..count];
            // SAFETY: every message points at a part, and every part at bytes, that live through the call; it only reads
            // them, and writes the lengths of the messages.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    left.as_mut_ptr(),
                    left.len() as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => at += sent,
                // The first frame was refused; continue with the others.
                _ => {
                    let begin = if at == 0 { 0 } else { self.ends[at - 1] };
                    self.refused.push(self.ends[at] - begin - HEADER_LEN);
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    #[test]
    fn every_frame_is_sent_in_order_or_refused() {
        let (socket, far) =
            socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_NONBLOCK)
                .expect("sockets");
        let mut batch = Batch::default();
        for n in 0..70 {
            batch.push(&socket, &vec![n; 60 + usize::from(n)], Offload::default());
        }
        let refused = batch.flush(&socket).len();
        let mut buffer = [0; 4096];
        let mut next = 0;
        while let Ok(len) = nix::unistd::read(&far, &mut buffer) {
            assert_eq!((len, buffer[HEADER_LEN]), (HEADER_LEN + 60 + usize::from(next), next));
            next += 1;
        }
        // A socket with the kernel's default buffer holds some ten datagrams.
        assert!(next > 0 && usize::from(next) + refused == 70, "{next} sent, {refused} refused");
        drop(far);
        batch.push(&socket, &[7; 64], Offload::default());
        assert_eq!(batch.flush(&socket), [64], "nobody is there");
        assert_eq!(batch.flush(&socket), [0usize; 0]);
        assert!(Batch::takes(&[0; 1518]) && !Batch::takes(&[0; 9000]));
    }
}
