//! A cluster for the model: servers that execute the actions of [`TransferState::step`], the list
//! of subtrees, and a network that repeats, delays and loses messages.
//!
//! The world abstracts from the namespace. A *key* is something that one rank serves, a directory
//! or a name, with a value that counts the acknowledged changes. A key may be inside another one,
//! and then moves along if the same rank serves both. A *plan* is a transfer that may begin once.

use std::collections::BTreeSet;

use types::Rank;

use crate::transfer::state::{
    Fence, ListView, Record, TransferAction, TransferEnd, TransferEvent, TransferId,
    TransferMeeting, TransferMessage, TransferState,
};

/// A transfer that may begin.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) key: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    /// The directories that a name leaves and enters: then the transfer needs a place, and a fence.
    pub(super) dirs: Option<(usize, usize)>,
}

/// A fault in the driver that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A commit does not look at the fence.
    IgnoresFence,
    /// A giver stays although its replacement of the list may have succeeded.
    StaysInDoubt,
    /// A recovery does not look for records.
    ForgetsRecords,
}

/// The limits of a run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) ranks: usize,
    /// The key that each key is inside of, and the rank that serves it first.
    pub(super) keys: Vec<(Option<usize>, usize)>,
    pub(super) plans: Vec<Plan>,
    pub(super) budget: Budget,
    pub(super) fault: Option<Fault>,
    /// Not all transfers stay.
    pub(super) proceeds: bool,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) crashes: u8,
    /// Takers that wait too long.
    pub(super) silences: u8,
    /// Givers that give up although nothing prevents the transfer.
    pub(super) stays: u8,
    /// Replacements of the list with an unknown outcome.
    pub(super) unknowns: u8,
    pub(super) writes: u8,
}

/// The list of subtrees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct List {
    version: u8,
    fences: Vec<u8>,
    authority: Vec<usize>,
    records: Vec<Option<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    payload: Vec<(usize, u8)>,
    taken: bool,
    given: bool,
}

/// A replacement of the list that a server wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Wish {
    /// A recovery raises the fence.
    Begin,
    Commit(usize, Fence),
    Raise(usize),
    Mark(usize),
}

/// A message: plan, receiver, content.
pub(super) type Mail = (usize, usize, TransferMessage);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    up: bool,
    /// A recovery raises the fence first.
    begins: bool,
    /// The server waits for the list.
    reads: bool,
    /// The list as this server knows it.
    list: List,
    /// The values of the keys that it serves, or is to serve.
    owns: Vec<Option<u8>>,
    transfers: Vec<Option<TransferState>>,
    wishes: BTreeSet<Wish>,
    /// The journal is not safe for these plans.
    unsafe_plans: BTreeSet<usize>,
    /// The payloads of these plans are to be taken.
    takes: BTreeSet<usize>,
}

/// A step of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    Begin(usize),
    Ready(usize),
    Stay(usize),
    Silent(usize, usize),
    Deliver(Mail),
    Safe(usize, usize),
    Take(usize, usize),
    Replace(usize, Wish),
    /// The replacement takes place, and the server does not learn of it.
    ReplaceUnknown(usize, Wish),
    Poll(usize),
    Write(usize, usize),
    /// A client uses the place of a plan.
    Occupy(usize),
    Crash(usize),
    Restart(usize),
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    list: List,
    servers: Vec<Server>,
    /// The content of the journals, which is durable.
    disks: Vec<Vec<Option<u8>>>,
    /// The places of these plans are in use.
    occupied: Vec<bool>,
    mail: BTreeSet<Mail>,
    begun: Vec<bool>,
    /// The changes of each key that a client knows as done.
    acknowledged: Vec<u8>,
    budget: Budget,
    /// An error that a server met.
    pub(super) wrong: Option<&'static str>,
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let authority: Vec<usize> = scenario.keys.iter().map(|(_, rank)| *rank).collect();
        let plans = scenario.plans.len();
        let list = List {
            version: 0,
            fences: vec![1; scenario.ranks],
            authority: authority.clone(),
            records: vec![None; plans],
        };
        let first = |rank| authority.iter().map(|at| (*at == rank).then_some(0)).collect();
        let disks: Vec<Vec<Option<u8>>> = (0..scenario.ranks).map(first).collect();
        let server = |rank: usize| Server {
            up: true,
            begins: false,
            reads: false,
            list: list.clone(),
            owns: disks[rank].clone(),
            transfers: vec![None; plans],
            wishes: BTreeSet::new(),
            unsafe_plans: BTreeSet::new(),
            takes: BTreeSet::new(),
        };
        Self {
            servers: (0..scenario.ranks).map(server).collect(),
            list: list.clone(),
            disks,
            occupied: vec![false; plans],
            mail: BTreeSet::new(),
            begun: vec![false; plans],
            acknowledged: vec![0; authority.len()],
            budget: scenario.budget,
            wrong: None,
        }
    }

    fn state(&self, rank: usize, plan: usize) -> Option<TransferState> {
        self.servers[rank].transfers[plan]
    }

    fn is_active(&self, rank: usize) -> bool {
        self.servers[rank].up && !self.servers[rank].begins
    }

    /// Whether a rank answers requests for a key.
    fn serves(&self, scenario: &Scenario, rank: usize, key: usize) -> bool {
        let frozen = (0..scenario.plans.len()).any(|plan| {
            let state = self.state(rank, plan);
            state.is_some_and(TransferState::is_frozen)
                && (key == scenario.plans[plan].key || scenario.is_inside(key, plan))
                && (scenario.plans[plan].from == rank || self.is_arriving(rank, plan))
        });
        self.is_active(rank) && self.servers[rank].owns[key].is_some() && !frozen
    }

    fn is_arriving(&self, rank: usize, plan: usize) -> bool {
        matches!(self.state(rank, plan), Some(TransferState::Taking | TransferState::Acknowledging))
    }

    /// Whether a rank freezes a directory.
    fn freezes(&self, scenario: &Scenario, rank: usize, dir: usize, plan: usize) -> bool {
        let Some((leaves, enters)) = scenario.plans[plan].dirs else { return false };
        let here = if scenario.plans[plan].from == rank { leaves } else { enters };
        here == dir && self.state(rank, plan).is_some_and(TransferState::is_frozen)
    }

    /// Whether no key has two authorities, and none has lost a change.
    pub(super) fn is_sound(&self, scenario: &Scenario) -> bool {
        (0..scenario.keys.len()).all(|key| {
            let ranks = 0..scenario.ranks;
            let serving: Vec<usize> =
                ranks.filter(|rank| self.serves(scenario, *rank, key)).collect();
            let is_whole =
                |rank: &usize| self.servers[*rank].owns[key] == Some(self.acknowledged[key]);
            serving.len() <= 1 && serving.iter().all(is_whole)
        })
    }

    /// Whether everything has ended, and each key has one authority.
    pub(super) fn is_settled(&self, scenario: &Scenario) -> bool {
        let ended = |state: &Option<TransferState>| {
            state.is_none_or(|state| matches!(state, TransferState::Ended(_)))
        };
        let at_rest = self.servers.iter().all(|server| {
            server.up
                && !server.begins
                && !server.reads
                && server.takes.is_empty()
                && server.wishes.is_empty()
                && server.transfers.iter().all(ended)
        });
        let served = (0..scenario.keys.len()).all(|key| {
            (0..scenario.ranks).filter(|rank| self.serves(scenario, *rank, key)).count() == 1
        });
        at_rest && served && self.list.records.iter().all(Option::is_none)
    }

    /// Whether a transfer ended like this on its giver.
    pub(super) fn ended(&self, scenario: &Scenario, plan: usize, end: TransferEnd) -> bool {
        self.state(scenario.plans[plan].from, plan) == Some(TransferState::Ended(end))
    }

    pub(super) fn steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        let budget = self.budget;
        for (plan, known) in scenario.plans.iter().enumerate() {
            if self.may_begin(scenario, plan) {
                steps.push(Step::Begin(plan));
            }
            if let Some(TransferState::Asking { ready, .. }) = self.state(known.from, plan) {
                if budget.stays > 0 {
                    steps.push(Step::Stay(plan));
                }
                if !ready && self.may_be_ready(scenario, plan) {
                    steps.push(Step::Ready(plan));
                }
            }
            let reserves = matches!(
                self.state(known.to, plan),
                Some(TransferState::Reserving | TransferState::Reserved)
            );
            if reserves && budget.silences > 0 {
                steps.push(Step::Silent(known.to, plan));
            }
            if let Some((_, enters)) = known.dirs
                && !self.occupied[plan]
                && budget.writes > 0
                && self.is_active(known.to)
                && !(0..scenario.plans.len()).any(|it| self.freezes(scenario, known.to, enters, it))
            {
                steps.push(Step::Occupy(plan));
            }
        }
        let active = |mail: &&Mail| self.is_active(mail.1);
        steps.extend(self.mail.iter().filter(active).map(|mail| Step::Deliver(*mail)));
        for (rank, server) in self.servers.iter().enumerate() {
            if !server.up {
                steps.push(Step::Restart(rank));
                continue;
            }
            if budget.crashes > 0 {
                steps.push(Step::Crash(rank));
            }
            steps.extend(server.unsafe_plans.iter().map(|plan| Step::Safe(rank, *plan)));
            let may_take = |plan: &&usize| self.may_take(scenario, (rank, **plan));
            let takes = server.takes.iter().filter(may_take);
            steps.extend(takes.map(|plan| Step::Take(rank, *plan)));
            for wish in &server.wishes {
                steps.push(Step::Replace(rank, *wish));
                if budget.unknowns > 0 && *wish != Wish::Begin {
                    steps.push(Step::ReplaceUnknown(rank, *wish));
                }
            }
            if !server.begins && (server.reads || server.list != self.list) {
                steps.push(Step::Poll(rank));
            }
            if budget.writes > 0 {
                let keys = 0..scenario.keys.len();
                let keys = keys.filter(|key| self.serves(scenario, rank, *key));
                steps.extend(keys.map(|key| Step::Write(rank, key)));
            }
        }
    }

    /// Whether the giver's rules let a transfer begin.
    fn may_begin(&self, scenario: &Scenario, plan: usize) -> bool {
        let Plan { key, from, .. } = scenario.plans[plan];
        let others = (0..scenario.plans.len()).filter(|other| *other != plan);
        let overlaps = |other: usize| {
            let theirs = scenario.plans[other].key;
            theirs == key || scenario.is_inside(key, other) || scenario.is_inside(theirs, plan)
        };
        let under_way = |other: usize| {
            let state = self.state(from, other);
            state.is_some_and(|state| !matches!(state, TransferState::Ended(_)))
        };
        !self.begun[plan]
            && self.serves(scenario, from, key)
            && !others.into_iter().any(|other| overlaps(other) && under_way(other))
    }

    /// Whether nothing that comes to the giver is to go along.
    fn may_be_ready(&self, scenario: &Scenario, plan: usize) -> bool {
        let from = scenario.plans[plan].from;
        let comes = |other: usize| {
            let record = self.servers[from].list.records[other].as_ref();
            scenario.plans[other].to == from && record.is_some_and(|record| !record.taken)
        };
        let mut others = 0..scenario.plans.len();
        self.is_active(from)
            && !others
                .any(|other| scenario.is_inside(scenario.plans[other].key, plan) && comes(other))
    }

    /// Whether a key inside the payload is the taker's: a subtree does not move to it.
    fn is_blocked(&self, scenario: &Scenario, plan: usize) -> bool {
        let Plan { from, to, .. } = scenario.plans[plan];
        let authority = &self.servers[from].list.authority;
        (0..scenario.keys.len()).any(|key| scenario.is_inside(key, plan) && authority[key] == to)
    }

    pub(super) fn take(&mut self, scenario: &Scenario, step: &Step) {
        match *step {
            Step::Begin(plan) => {
                self.begun[plan] = true;
                let from = scenario.plans[plan].from;
                self.set(scenario, (from, plan), TransferState::give());
            }
            Step::Ready(plan) => {
                let from = scenario.plans[plan].from;
                let blocked = self.is_blocked(scenario, plan);
                let event = if blocked { TransferEvent::Stay } else { TransferEvent::Ready };
                self.step(scenario, (from, plan), event);
            }
            Step::Stay(plan) => {
                self.budget.stays -= 1;
                self.step(scenario, (scenario.plans[plan].from, plan), TransferEvent::Stay);
            }
            Step::Silent(rank, plan) => {
                self.budget.silences = self.budget.silences.saturating_sub(1);
                self.step(scenario, (rank, plan), TransferEvent::Silent);
            }
            Step::Deliver(mail) => self.deliver(scenario, mail),
            Step::Safe(rank, plan) => {
                self.servers[rank].unsafe_plans.remove(&plan);
                self.step(scenario, (rank, plan), TransferEvent::Safe);
            }
            Step::Take(rank, plan) => self.take_payload(scenario, (rank, plan)),
            Step::Replace(rank, wish) => self.replace(scenario, rank, wish, true),
            Step::ReplaceUnknown(rank, wish) => {
                self.budget.unknowns -= 1;
                self.replace(scenario, rank, wish, false);
            }
            Step::Poll(rank) => self.read(scenario, rank),
            Step::Write(rank, key) => {
                self.budget.writes -= 1;
                self.acknowledged[key] += 1;
                let value = self.servers[rank].owns[key].map(|value| value.saturating_add(1));
                self.servers[rank].owns[key] = value;
                self.disks[rank][key] = value;
            }
            Step::Occupy(plan) => {
                self.budget.writes -= 1;
                self.occupied[plan] = true;
            }
            Step::Crash(rank) => {
                self.budget.crashes -= 1;
                let plans = scenario.plans.len();
                let server = &mut self.servers[rank];
                (server.up, server.begins, server.reads) = (false, false, false);
                server.owns = vec![None; scenario.keys.len()];
                server.transfers = vec![None; plans];
                server.list = List::default();
                server.wishes.clear();
                server.unsafe_plans.clear();
                server.takes.clear();
            }
            Step::Restart(rank) => self.restart(scenario, rank),
        }
    }

    /// A server begins: the list decides about its keys.
    fn restart(&mut self, scenario: &Scenario, rank: usize) {
        let list = self.list.clone();
        let server = &mut self.servers[rank];
        (server.up, server.begins) = (true, list.fences[rank] > 0);
        server.transfers = vec![None; scenario.plans.len()];
        server.wishes.clear();
        server.unsafe_plans.clear();
        server.takes.clear();
        if server.begins {
            server.wishes.insert(Wish::Begin);
        }
        for key in 0..scenario.keys.len() {
            let comes = list.records.iter().enumerate().any(|(plan, record)| {
                let of_key = |record: &Entry| {
                    !record.taken && record.payload.iter().any(|(moved, _)| *moved == key)
                };
                scenario.plans[plan].to == rank && record.as_ref().is_some_and(of_key)
            });
            if list.authority[key] != rank {
                self.disks[rank][key] = None;
            }
            let here = list.authority[key] == rank && !comes;
            server.owns[key] = if here { self.disks[rank][key] } else { None };
        }
        server.list = list;
        if scenario.fault != Some(Fault::ForgetsRecords) {
            self.find_records(scenario, rank);
        }
    }

    /// Records of transfers that this rank knows nothing of.
    fn find_records(&mut self, scenario: &Scenario, rank: usize) {
        for (plan, Plan { from, to, .. }) in scenario.plans.iter().enumerate() {
            let known = self.state(rank, plan);
            let known = known.is_some_and(|state| !matches!(state, TransferState::Ended(_)));
            let view = self.view(scenario, rank, plan);
            if !known && [*from, *to].contains(&rank) && view.record == Record::Committed {
                let found = TransferState::found(*from == rank, view.record);
                self.set(scenario, (rank, plan), found);
            }
        }
    }

    fn view(&self, scenario: &Scenario, rank: usize, plan: usize) -> ListView {
        let list = &self.servers[rank].list;
        let Plan { from, to, .. } = scenario.plans[plan];
        let record = match &list.records[plan] {
            None => Record::Absent,
            Some(record) if (rank == from && record.given) || (rank == to && record.taken) => {
                Record::Marked
            }
            Some(_) => Record::Committed,
        };
        ListView { record, fence: scenario.fence_in(list, plan) }
    }

    fn step(&mut self, scenario: &Scenario, at: (usize, usize), event: TransferEvent) {
        let Some(state) = self.state(at.0, at.1) else { return };
        let fence = scenario.fence_in(&self.servers[at.0].list, at.1);
        let mut next = state.step(event, fence);
        if scenario.fault == Some(Fault::StaysInDoubt)
            && event == TransferEvent::Unknown
            && matches!(state, TransferState::Committing { .. })
        {
            next = (TransferState::Ended(TransferEnd::Stayed), vec![TransferAction::Release]);
        }
        self.set(scenario, at, next);
    }

    fn set(
        &mut self,
        scenario: &Scenario,
        (rank, plan): (usize, usize),
        (state, actions): (TransferState, Vec<TransferAction>),
    ) {
        self.servers[rank].transfers[plan] = Some(state);
        for action in actions {
            self.execute(scenario, (rank, plan), action);
        }
    }

    fn execute(
        &mut self,
        scenario: &Scenario,
        (rank, plan): (usize, usize),
        action: TransferAction,
    ) {
        let Plan { from, to, .. } = scenario.plans[plan];
        match action {
            TransferAction::Send(message) => {
                let other = if rank == from { to } else { from };
                self.mail.insert((plan, other, message));
            }
            // The step `Ready` is possible again.
            TransferAction::Prepare | TransferAction::Release => {}
            TransferAction::Commit(fence) => {
                self.servers[rank].wishes.insert(Wish::Commit(plan, fence));
            }
            TransferAction::Drop => {
                let record = self.servers[rank].list.records[plan].clone();
                for (key, _) in record.into_iter().flat_map(|record| record.payload) {
                    self.servers[rank].owns[key] = None;
                }
                self.servers[rank].unsafe_plans.insert(plan);
            }
            TransferAction::Freeze => {
                self.servers[rank].unsafe_plans.insert(plan);
            }
            TransferAction::RaiseFence => {
                self.servers[rank].wishes.insert(Wish::Raise(plan));
            }
            TransferAction::Take => {
                self.servers[rank].takes.insert(plan);
                // The journal has the payload only after the next step.
                self.servers[rank].unsafe_plans.remove(&plan);
            }
            TransferAction::Mark => {
                self.servers[rank].wishes.insert(Wish::Mark(plan));
            }
            TransferAction::Thaw => {
                self.servers[rank].unsafe_plans.remove(&plan);
            }
            TransferAction::ReadList => self.servers[rank].reads = true,
        }
    }

    /// Whether a payload may come: no part of it leaves this rank. A recovery that finds the
    /// record of the earlier transfer drops the payload of that one.
    fn may_take(&self, scenario: &Scenario, (rank, plan): (usize, usize)) -> bool {
        let records = &self.servers[rank].list.records;
        let keys = |plan: usize| records[plan].iter().flat_map(|it| &it.payload).map(|it| it.0);
        let leaves = |other: usize| {
            scenario.plans[other].from == rank
                && matches!(
                    self.state(rank, other),
                    Some(TransferState::Given | TransferState::Marking)
                )
        };
        let mut others = (0..scenario.plans.len()).filter(|other| leaves(*other));
        !others.any(|other| keys(other).any(|key| keys(plan).any(|it| it == key)))
    }

    fn take_payload(&mut self, scenario: &Scenario, (rank, plan): (usize, usize)) {
        self.servers[rank].takes.remove(&plan);
        if scenario.plans[plan].dirs.is_some() {
            let again = self.disks[rank][scenario.plans[plan].key].is_some();
            if self.occupied[plan] && !again {
                self.wrong = Some("the place of a payload is in use");
            }
            self.occupied[plan] = true;
        }
        let record = self.servers[rank].list.records[plan].clone();
        for (key, value) in record.into_iter().flat_map(|record| record.payload) {
            self.servers[rank].owns[key] = Some(value);
            self.disks[rank][key] = Some(value);
        }
        self.servers[rank].unsafe_plans.insert(plan);
    }

    /// The list is read.
    fn read(&mut self, scenario: &Scenario, rank: usize) {
        self.servers[rank].list = self.list.clone();
        self.servers[rank].reads = false;
        for plan in 0..scenario.plans.len() {
            // A list that was read does not tell the outcome of a replacement under way.
            let is_wish = |wish: &Wish| match wish {
                Wish::Begin => false,
                Wish::Commit(of, _) | Wish::Raise(of) | Wish::Mark(of) => *of == plan,
            };
            if !self.servers[rank].wishes.iter().any(is_wish) {
                let view = self.view(scenario, rank, plan);
                self.step(scenario, (rank, plan), TransferEvent::List(view));
            }
        }
        self.find_records(scenario, rank);
    }

    fn deliver(&mut self, scenario: &Scenario, (plan, rank, message): Mail) {
        if message != TransferMessage::Ask || self.is_known(rank, plan) {
            return self.step(scenario, (rank, plan), TransferEvent::Message(message));
        }
        if self.state(rank, plan).is_some() {
            return;
        }
        let id = |plan: usize| TransferId {
            number: plan as u64,
            from: Rank(u16::try_from(scenario.plans[plan].from).expect("few ranks")),
        };
        let place = scenario.plans[plan].dirs.map(|(_, enters)| enters);
        if place.is_some() && self.occupied[plan] {
            let from = scenario.plans[plan].from;
            self.mail.insert((plan, from, TransferMessage::Refused));
            return;
        }
        let own: Vec<usize> = (0..scenario.plans.len())
            .filter(|own| place.is_some_and(|dir| self.freezes(scenario, rank, dir, *own)))
            .collect();
        let states = own.iter().filter_map(|own| Some((id(*own), self.state(rank, *own)?)));
        match TransferMeeting::of(id(plan), states) {
            TransferMeeting::Reserve => {}
            TransferMeeting::Yield(yielding) => {
                for own in own.into_iter().filter(|own| yielding.contains(&id(*own))) {
                    self.step(scenario, (rank, own), TransferEvent::Stay);
                }
            }
            TransferMeeting::Wait => return,
            TransferMeeting::Refuse => {
                let from = scenario.plans[plan].from;
                self.mail.insert((plan, from, TransferMessage::Refused));
                return;
            }
        }
        self.set(scenario, (rank, plan), TransferState::reserve());
    }

    fn is_known(&self, rank: usize, plan: usize) -> bool {
        let state = self.state(rank, plan);
        state.is_some_and(|state| !matches!(state, TransferState::Ended(_)))
    }

    /// A replacement of the list takes place, or finds another version.
    fn replace(&mut self, scenario: &Scenario, rank: usize, wish: Wish, is_known: bool) {
        self.servers[rank].wishes.remove(&wish);
        let at = match wish {
            Wish::Begin => None,
            Wish::Commit(plan, _) | Wish::Raise(plan) | Wish::Mark(plan) => Some((rank, plan)),
        };
        let Some(next) = self.proposed(scenario, rank, wish) else {
            // The known list forbids it.
            if let Some(at) = at {
                let view = self.view(scenario, rank, at.1);
                self.step(scenario, at, TransferEvent::List(view));
            }
            return;
        };
        let replaced = self.servers[rank].list.version == self.list.version;
        if replaced {
            self.list = next;
        }
        match at {
            None if replaced => {
                self.servers[rank].list = self.list.clone();
                self.servers[rank].begins = false;
            }
            None => self.restart(scenario, rank),
            Some(at) if !is_known => self.step(scenario, at, TransferEvent::Unknown),
            Some(at) if replaced => {
                self.servers[rank].list = self.list.clone();
                self.step(scenario, at, TransferEvent::Replaced);
            }
            Some(_) => self.read(scenario, rank),
        }
    }

    /// The list that a server wants, made of the one that it knows.
    fn proposed(&self, scenario: &Scenario, rank: usize, wish: Wish) -> Option<List> {
        let mut list = self.servers[rank].list.clone();
        list.version += 1;
        match wish {
            // The payload has come: the taker does not withdraw.
            Wish::Raise(plan) if list.records[plan].is_some() => return None,
            Wish::Begin | Wish::Raise(_) => list.fences[rank] += 1,
            Wish::Mark(plan) => {
                let giver = scenario.plans[plan].from == rank;
                let record = list.records[plan].as_mut()?;
                record.given |= giver;
                record.taken |= !giver;
                if record.given && record.taken {
                    list.records[plan] = None;
                }
            }
            Wish::Commit(plan, fence) => {
                let ignores = scenario.fault == Some(Fault::IgnoresFence);
                let valid = ignores || scenario.fence_in(&list, plan) == fence;
                if !valid || self.is_blocked(scenario, plan) || !self.may_be_ready(scenario, plan) {
                    return None;
                }
                let keys = (0..scenario.keys.len()).filter(|key| {
                    let inside = scenario.is_inside(*key, plan) && list.authority[*key] == rank;
                    *key == scenario.plans[plan].key || inside
                });
                let keys: Vec<usize> = keys.collect();
                let value = |key: usize| self.servers[rank].owns[key].unwrap_or(u8::MAX);
                let payload = keys.iter().map(|key| (*key, value(*key))).collect();
                list.records[plan] = Some(Entry { payload, taken: false, given: false });
                keys.into_iter().for_each(|key| list.authority[key] = scenario.plans[plan].to);
            }
        }
        Some(list)
    }

    /// The world after a while without faults: each message arrives once, crashed servers start,
    /// and a rank that waits in vain gives up.
    pub(super) fn healed(&self, scenario: &Scenario) -> Self {
        let mut world = self.clone();
        world.mail.clear();
        world.budget = Budget { writes: 0, ..Budget::default() };
        for round in 0..40 {
            if world.is_settled(scenario) && world.mail.is_empty() {
                break;
            }
            world.heal(scenario, round);
        }
        world
    }

    fn heal(&mut self, scenario: &Scenario, round: usize) {
        for mail in std::mem::take(&mut self.mail) {
            if self.is_active(mail.1) {
                self.deliver(scenario, mail);
            }
        }
        for rank in 0..scenario.ranks {
            if !self.servers[rank].up {
                self.restart(scenario, rank);
            }
            for wish in self.servers[rank].wishes.clone() {
                // A recovery that begins again forgets the other wishes.
                if self.servers[rank].wishes.contains(&wish) {
                    self.replace(scenario, rank, wish, true);
                }
            }
            for plan in self.servers[rank].takes.clone() {
                if self.may_take(scenario, (rank, plan)) {
                    self.take_payload(scenario, (rank, plan));
                }
            }
            for plan in self.servers[rank].unsafe_plans.clone() {
                self.take(scenario, &Step::Safe(rank, plan));
            }
            if self.is_active(rank) {
                self.read(scenario, rank);
            }
        }
        for (plan, Plan { from, to, .. }) in scenario.plans.iter().enumerate() {
            if let Some(TransferState::Asking { ready: false, .. }) = self.state(*from, plan)
                && self.may_be_ready(scenario, plan)
            {
                self.take(scenario, &Step::Ready(plan));
            }
            self.step(scenario, (*from, plan), TransferEvent::Due);
            if round >= 8 {
                self.step(scenario, (*from, plan), TransferEvent::Stay);
            }
            if round >= 10 {
                self.step(scenario, (*to, plan), TransferEvent::Silent);
            }
        }
    }
}

impl Scenario {
    /// Whether a key is inside the payload of a plan.
    fn is_inside(&self, key: usize, plan: usize) -> bool {
        self.keys[key].0 == Some(self.plans[plan].key)
    }

    /// The taker's fence, for a plan that needs one.
    fn fence_in(&self, list: &List, plan: usize) -> Fence {
        let Plan { to, ref dirs, .. } = self.plans[plan];
        let fence = list.fences.get(to).copied().unwrap_or_default();
        if dirs.is_some() { Fence(fence.into()) } else { Fence::NONE }
    }
}
