//! Changed frames of a user without rights: bytes of valid messages are replaced, cut and copied,
//! most with a checksum that fits. Nothing of root's is read or changed, and the server goes on.

use wire::frame;

use super::*;
use crate::MdsEffects;

/// Frames of an ordinary run; `CUDELE_FUZZ` says how many in a longer one.
const FRAMES: u64 = 100_000;
/// The invariants, and what is root's, are looked at after so many.
const CHECKED_EVERY: u64 = 1_000;
/// Valid frames from which the others are made.
const MODELS: usize = 2_048;
const CONN: ConnId = ConnId(FIRST_CONN);
const UID: u32 = 7;
const SECRET: &[u8] = b"of root alone";

/// The course of the frames.
#[derive(Debug, Default)]
struct Counts {
    incomplete: u64,
    damaged: u64,
    no_message: u64,
    handled: u64,
    answers: u64,
    ended: u64,
}

/// What is root's: its attributes and content, by inode.
type Roots = Vec<(Ino, Attr, Vec<u8>)>;

struct Attack {
    hostile: Hostile,
    models: Vec<Vec<u8>>,
    /// The inodes that are root's.
    inos: Vec<Ino>,
    frame: Vec<u8>,
    effects: MdsEffects,
    counts: Counts,
}

impl Attack {
    fn new(seed: u64) -> Self {
        let mut hostile = Hostile::on(seed, Tree::new());
        let tree = &mut hostile.cluster;
        let private = tree.make(Ino::ROOT, "private", 0o040_700);
        let new = NewInode { mode: FILE, data: SECRET, size: 13, ..NewInode::default() };
        let op = Op::Change(ChangeOp::Create { parent: private, name: b"secret", new });
        let Ok(Answer::Attr(secret)) = tree.answer(op) else { panic!("no file") };
        let closed = AttrChange { mode: Some(0o755), ..AttrChange::default() };
        let ino = tree.open;
        tree.answer(Op::Change(ChangeOp::SetAttr { ino, change: closed })).unwrap();
        let inos = vec![Ino::ROOT, tree.dir, tree.file, tree.link, tree.sub, tree.full, tree.open];
        let inos = [inos, vec![private, secret.ino]].concat();
        hostile.inos.extend([private, secret.ino]);
        let models = (0..MODELS).map(|at| hostile.model(at)).collect();
        let (frame, effects, counts) = (Vec::new(), MdsEffects::default(), Counts::default());
        let mut attack = Self { hostile, models, inos, frame, effects, counts };
        attack.connect();
        attack
    }

    /// The attributes and the content of everything that is root's. The content of a file that is
    /// shared is in the object store.
    fn roots(&self) -> Roots {
        let tree = &self.hostile.cluster;
        let namespace = tree.mds(0).namespace();
        let of = |ino: &Ino| {
            let attr = namespace.getattr(*ino).expect("it is in memory");
            let inline = namespace.data(*ino).unwrap_or_default();
            let object = metastore::data_name(*ino, attr.stripe.pool(), 0);
            let stored = tree.store.object(&object).unwrap_or_default();
            (*ino, attr, if inline.is_empty() { stored } else { inline }.to_vec())
        };
        self.inos.iter().map(of).collect()
    }

    fn connect(&mut self) {
        let client = ClientId::of_user(UID, 1);
        let hello = Hello { client, epoch: Epoch(0), unsafe_requests: 0 };
        let tree = &mut self.hostile.cluster;
        tree.input(0, MdsInput::Opened(CONN, Peer::User(user(UID))));
        tree.input(0, MdsInput::Message(CONN, Message::Hello(hello)));
        tree.settle();
    }

    /// Makes the next frame from a valid one.
    fn change(&mut self) {
        let choice = &mut self.hostile.choice;
        let model = &self.models[choice.index(MODELS)];
        self.frame.clone_from(model);
        for _ in 0..choice.below(4) {
            let at = choice.index(self.frame.len());
            match choice.below(4) {
                0 => self.frame[at] ^= 1 << choice.below(8),
                1 => self.frame[at] = choice.bits().to_le_bytes()[0],
                2 => self.frame.truncate(at.max(1)),
                _ => {
                    // Numbers of one message in the place of those of another.
                    let other = &self.models[choice.index(MODELS)];
                    let from = choice.index(other.len());
                    let most = (other.len() - from).min(self.frame.len() - at).min(12);
                    self.frame[at..at + most].copy_from_slice(&other[from..from + most]);
                }
            }
        }
        if choice.percent(90) && self.frame.len() > frame::HEADER_BYTES {
            // The checksum fits, as that of any client would.
            let payload = self.frame.split_off(frame::HEADER_BYTES);
            self.frame.clear();
            frame::encode(&mut self.frame, |out| out.extend_from_slice(&payload));
        }
    }

    fn send(&mut self) {
        let payload = match frame::decode(&self.frame) {
            Ok(None) => return self.counts.incomplete += 1,
            Err(_) => return self.counts.damaged += 1,
            Ok(Some((frame, _))) => frame.payload,
        };
        let Ok(message) = Message::decode(payload) else { return self.counts.no_message += 1 };
        self.counts.handled += 1;
        let clock = self.hostile.cluster.clock();
        let input = MdsInput::Message(CONN, message);
        self.hostile.cluster.mds_mut().handle(clock, input, &mut self.effects);
        for (_, answers) in self.effects.outbox.iter() {
            self.counts.answers += 1;
            let leaks = answers.windows(SECRET.len()).any(|bytes| bytes == SECRET);
            assert!(!leaks, "a user reads what is root's, by {:?}", Message::decode(payload));
        }
        let effects = &self.effects;
        let ends = effects.close.contains(&CONN);
        let is_quiet = effects.store.is_empty() && effects.to_peers.is_empty() && !ends;
        if is_quiet && !self.hostile.cluster.mds(0).has_work() {
            return self.effects.outbox.clear();
        }
        let effects = std::mem::take(&mut self.effects);
        self.hostile.cluster.take_effects(0, effects);
        self.hostile.cluster.settle();
        if ends {
            self.counts.ended += 1;
            self.hostile.cluster.input(0, MdsInput::Closed(CONN));
            self.connect();
        }
    }
}

impl Hostile {
    /// A valid frame: mostly of a request.
    fn model(&mut self, at: usize) -> Vec<u8> {
        let client = ClientId::of_user(UID, 1);
        let message = match at % 16 {
            0 => Message::Hello(Hello { client, epoch: Epoch(1), unsafe_requests: 1 }),
            1 => Message::Chunk { tid: Tid(self.tid), bytes: b"part of a journal" },
            2 => Message::Peer(Box::new(self.peer_message())),
            _ => self.request(),
        };
        message.to_frame()
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the number of a longer run")]
fn changed_frames_of_a_user_neither_read_nor_change_what_is_roots() {
    let count = std::env::var("CUDELE_FUZZ").ok().map(|count| count.parse::<u64>().unwrap());
    let (count, seed) = (count.unwrap_or(FRAMES), 1);
    println!("seed {seed}");
    let mut attack = Attack::new(seed);
    let before = attack.roots();
    for number in 1..=count {
        attack.change();
        attack.send();
        if number.is_multiple_of(CHECKED_EVERY) {
            attack.hostile.cluster.pass(1);
            attack.hostile.cluster.mds(0).validate();
            assert_eq!(attack.roots(), before, "after {number} frames");
        }
    }
    println!("{:?}", attack.counts);
    let Counts { handled, answers, .. } = attack.counts;
    assert!(handled > count / 10 && answers > count / 20, "the server had something to do");
    // And it serves its owner.
    attack.hostile.cluster.connect(2);
    let asked = Op::Session(SessionOp::Sync);
    attack.hostile.cluster.answer(asked).unwrap();
}
