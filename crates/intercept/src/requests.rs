//! Requests of the library in the job's programs, over a socket.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cudele::{Ino, Result};
use jobtree::{Description, Inode, KeeperRequest};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use types::{Errno, Error};

use crate::{Keeper, held, io};

/// A program that stops in the middle of a request does not delay other requests for longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers requests until the keeper is gone.
pub(crate) fn listen(keeper: &Arc<Keeper>) -> Result<()> {
    let failed = |error: std::io::Error| io("preload", error);
    let address = SocketAddr::from_abstract_name(&keeper.socket).map_err(failed)?;
    let listener = UnixListener::bind_addr(&address).map_err(failed)?;
    let keeper = Arc::downgrade(keeper);
    let thread = std::thread::Builder::new().name("preload".to_owned());
    thread.spawn(move || serve(&listener, &keeper)).map(drop).map_err(failed)
}

fn serve(listener: &UnixListener, keeper: &Weak<Keeper>) {
    for stream in listener.incoming() {
        let Some(keeper) = keeper.upgrade() else { return };
        // A program that was killed after its request needs no answer.
        if let Ok(stream) = stream {
            let _ = answer(&keeper, &stream);
        }
    }
}

fn answer(keeper: &Keeper, mut stream: &UnixStream) -> Result<()> {
    let failed = |error: std::io::Error| io("preload", error);
    let peer =
        rustix::net::sockopt::socket_peercred(stream).map_err(|errno| failed(errno.into()))?;
    if peer.uid != rustix::process::geteuid() {
        // The socket has no permissions, and nobody else may map the region either. Not read: a
        // stranger must not delay the job.
        return reply(stream, Err(Error::of(Errno::NotPermitted, "preload")));
    }
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut message = [0; KeeperRequest::BYTES];
    stream.read_exact(&mut message).map_err(failed)?;
    let Some((request, about)) = KeeperRequest::parse(message) else {
        return reply(stream, Err(Error::of(Errno::Invalid, "preload")));
    };
    match request {
        KeeperRequest::Close => {
            reply(stream, keeper.close(Some("a call that only the mount answers")))
        }
        KeeperRequest::Numbers => reply(stream, keeper.grant_numbers()),
        KeeperRequest::Sync => {
            let ino = Ino(keeper.region.ino(Inode(about)));
            reply(stream, keeper.sync(ino))
        }
        KeeperRequest::Descriptor => {
            let state = held(&keeper.state);
            let session = keeper.session(&state);
            let found = keeper.stand_ins.describe(&session, Description(about));
            drop(state);
            match found {
                Ok(descriptor) => reply_with(stream, 0, Some(descriptor.as_fd())),
                Err(error) => reply(stream, Err(error)),
            }
        }
    }
}

fn reply(stream: &UnixStream, result: Result<()>) -> Result<()> {
    reply_with(stream, result.map_or_else(|error| i32::from(error.errno as u16), |()| 0), None)
}

fn reply_with(stream: &UnixStream, status: i32, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors;
    if let Some(descriptor) = descriptor {
        descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let bytes = status.to_ne_bytes();
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
    sent.map(drop).map_err(|errno| io("preload", errno))
}

impl Keeper {
    /// Makes an inode as durable as the policy promises.
    fn sync(&self, ino: Ino) -> Result<()> {
        self.close(Some("fsync"))?;
        self.write_back_of(ino)?;
        self.vfs.persist_owned(self.root)
    }
}
