//! Locks of Ceph's, and questions to the watchers of an object.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::time::Duration;

use super::{Code, CodeResult, Io, Pool, check, text};

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rados) struct Holder {
    /// Its connection: `client.` and the number of [`Cluster::instance`].
    pub(in crate::rados) client: String,
    /// The cookie with which it took the lock.
    pub(in crate::rados) cookie: String,
    /// Where it is connected from.
    pub(in crate::rados) address: String,
}

impl Pool {
    /// Takes a free lock; `BUSY` if it is held.
    pub(in crate::rados) fn lock(&self, object: &str, lock: &CStr, cookie: &str) -> CodeResult<()> {
        let (object, cookie) = (text(object)?, text(cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call; without a duration the lock does not expire.
        check(unsafe {
            (api.rados_lock_exclusive)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                cookie.as_ptr(),
                c"".as_ptr(),
                null_mut(),
                0,
            )
        })
    }

    /// Becomes one of the holders of a lock that is only ever taken so.
    pub(in crate::rados) fn share(
        &self,
        object: &str,
        lock: &CStr,
        cookie: &str,
    ) -> CodeResult<()> {
        let (object, cookie) = (text(object)?, text(cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: as above.
        check(unsafe {
            (api.rados_lock_shared)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                cookie.as_ptr(),
                c"".as_ptr(),
                c"".as_ptr(),
                null_mut(),
                0,
            )
        })
    }

    pub(in crate::rados) fn unlock(
        &self,
        object: &str,
        lock: &CStr,
        cookie: &str,
    ) -> CodeResult<()> {
        let (object, cookie) = (text(object)?, text(cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call.
        check(unsafe { (api.rados_unlock)(io, object.as_ptr(), lock.as_ptr(), cookie.as_ptr()) })
    }

    /// Takes the lock from its holder.
    pub(in crate::rados) fn break_lock(
        &self,
        object: &str,
        lock: &CStr,
        holder: &Holder,
    ) -> CodeResult<()> {
        let object = text(object)?;
        let (client, cookie) = (text(&holder.client)?, text(&holder.cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call.
        check(unsafe {
            (api.rados_break_lock)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        })
    }

    /// The holders of a lock.
    pub(in crate::rados) fn holders(&self, object: &str, lock: &CStr) -> CodeResult<Vec<Holder>> {
        /// Of each of the texts: room for hundreds of holders. More are refused (`RANGE`).
        const BYTES: usize = 64 << 10;
        let object = text(object)?;
        let Io(api, io) = self.io;
        let mut exclusive = 0;
        let mut texts = [(); 4].map(|()| (vec![0u8; BYTES], BYTES));
        let [tag, clients, cookies, addresses] = &mut texts;
        let pointer = |(buffer, _): &mut (Vec<u8>, usize)| buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: four buffers with their lengths.
        let count = unsafe {
            (api.rados_list_lockers)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                &raw mut exclusive,
                pointer(tag),
                &raw mut tag.1,
                pointer(clients),
                &raw mut clients.1,
                pointer(cookies),
                &raw mut cookies.1,
                pointer(addresses),
                &raw mut addresses.1,
            )
        };
        let count = match c_int::try_from(count).map_err(|_| Code::INVALID)? {
            -2 => return Ok(Vec::new()),
            code => check(code).and_then(|()| usize::try_from(code).map_err(|_| Code::INVALID))?,
        };
        // Each ends with a zero byte.
        let all = |(buffer, _): &(Vec<u8>, usize)| -> Vec<String> {
            let texts = buffer.split(|byte| *byte == 0).take(count);
            texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
        };
        let [_, clients, cookies, addresses] = &texts;
        let rest = all(cookies).into_iter().zip(all(addresses));
        let holders = all(clients).into_iter().zip(rest);
        let holder = |(client, (cookie, address))| Holder { client, cookie, address };
        Ok(holders.map(holder).collect())
    }

    /// The holder of an exclusive lock.
    pub(in crate::rados) fn holder(&self, object: &str, lock: &CStr) -> CodeResult<Option<Holder>> {
        Ok(self.holders(object, lock)?.into_iter().next())
    }

    /// Asks all watchers of an object for an answer within this time. Returns the number of
    /// answers.
    pub(in crate::rados) fn ask_watchers(
        &self,
        object: &str,
        patience: Duration,
    ) -> CodeResult<u32> {
        let object = text(object)?;
        let Io(api, io) = self.io;
        let (mut reply, mut bytes) = (null_mut(), 0);
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: nothing is sent along; the reply is written before the call returns.
        let code = unsafe {
            (api.rados_notify2)(
                io,
                object.as_ptr(),
                null(),
                0,
                patience_ms,
                &raw mut reply,
                &raw mut bytes,
            )
        };
        let reply = self.cluster.take(reply, bytes);
        // The reply begins with the number of answers. A missing answer is `ETIMEDOUT`.
        let answered = reply.first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
        if answered > 0 { Ok(answered) } else { check(code).map(|()| 0) }
    }
}
