//! The end of a client.

use crate::Fs;

impl Fs {
    /// Ends the connections, and gives all capabilities back first: no other client has to wait for
    /// this one. Requests fail from now on (`EIO`). Dropping the last reference does the same; a
    /// process that ends while its threads have references calls this.
    pub fn close(&self) {
        self.link.close();
        self.ranks.others().iter().for_each(|link| link.close());
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.close();
    }
}
