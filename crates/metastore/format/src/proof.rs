//! Proofs that a metadata server would have made the same runs of a client's journal (BF-06).
//!
//! A *verifier* judges every event of a journal, writes the runs itself, and proves the verdict
//! with a key that it shares with the metadata servers. A holder of the key is believed; without it
//! a proof can neither be made nor changed. The server checks it at a cost that does not depend on
//! the number of names in the runs.
//!
//! Not here: judging, and where the key comes from.
//!
//! Invariant: two different statements have different bytes, so that a proof is of one of them.

use types::bytes::Put;
use types::{Attr, ClientId, Cred, Epoch, Ino};

/// A secret that the metadata servers of a cluster and its verifiers share.
#[derive(Clone, PartialEq, Eq)]
pub struct ProofKey([u8; ProofKey::BYTES]);

impl ProofKey {
    /// How many bytes a key has.
    pub const BYTES: usize = 32;

    /// The key that consists of these bytes, which must be random.
    #[must_use]
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The key in a key file: 64 hexadecimal digits, and perhaps the end of a line.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        types::hex::decode(text.trim_end())?.try_into().ok().map(Self)
    }

    /// What [`ProofKey::parse`] reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        types::hex::encode(&self.0) + "\n"
    }
}

impl std::fmt::Debug for ProofKey {
    /// Says nothing of it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey(..)")
    }
}

/// The proved statement: that a user may have made these runs and done the rest, beginning with a
/// subtree with this root, while this client had it.
#[derive(Clone, Copy, Debug)]
pub struct ProofStatement<'a> {
    /// The decoupled subtree's root: its number, mode, owner and group count.
    pub root: &'a Attr,
    /// The owner of the subtree.
    pub client: ClientId,
    /// The term of the decoupling: an earlier one's proofs are worth nothing.
    pub epoch: Epoch,
    /// On whose behalf.
    pub cred: &'a Cred,
    /// The list of runs as it is sent, without its proof.
    pub list: &'a [u8],
    /// The rest of the journal as it is sent.
    pub rest: &'a [u8],
}

/// See [`ProofStatement`].
pub type Proof = [u8; 32];

/// The first bytes of a statement.
const CONTEXT: &[u8] = b"cudele runs 1";

impl ProofStatement<'_> {
    /// Proves it.
    #[must_use]
    pub fn prove(&self, key: &ProofKey) -> Proof {
        *self.mac(key).as_bytes()
    }

    /// Whether the maker of a proof had the key, and meant this statement. Takes the same time for
    /// all wrong proofs.
    #[must_use]
    pub fn is_proved_by(&self, proof: &Proof, key: &ProofKey) -> bool {
        self.mac(key) == *proof
    }

    fn mac(&self, key: &ProofKey) -> blake3::Hash {
        let Self { root, client, epoch, cred, list, rest } = *self;
        let mut front = Vec::new();
        front.put_bytes(CONTEXT);
        let Attr { ino: Ino(ino), mode, uid, gid, .. } = *root;
        for number in [ino, u64::from(mode), u64::from(uid), u64::from(gid), client.0, epoch.0] {
            front.put_u64(number);
        }
        for number in [cred.uid, cred.gid] {
            front.put_u64(u64::from(number));
        }
        let mut groups = cred.groups.clone();
        groups.sort_unstable();
        groups.dedup();
        front.put_u64(groups.len() as u64);
        groups.iter().for_each(|group| front.put_u64(u64::from(*group)));
        let mut hasher = blake3::Hasher::new_keyed(&key.0);
        hasher.update(&front);
        for part in [list, rest] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests;
