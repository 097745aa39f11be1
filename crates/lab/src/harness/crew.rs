//! Client processes, seen from the parent: start them, wait until all are ready, let all go at
//! once, collect their reports.
//!
//! A client is a process of its own, so that it shares neither memory nor locks nor a core's cache
//! with the server or with another client. Invariant: dropping a crew ends its processes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use cudele::{Errno, Error, Result};

use super::clock::clock_ns;
use super::job::{Job, JobOutcome, MIDDLE, READY};
use super::stats::seconds_between;

struct Member {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// See the module documentation.
pub(crate) struct Crew {
    members: Vec<Member>,
}

/// The joint result of a crew.
#[derive(Clone, Debug)]
pub(crate) struct Together {
    /// Each client's outcome.
    pub(crate) outcomes: Vec<JobOutcome>,
    /// From the first client's start to the last one's end.
    pub(crate) seconds: f64,
}

fn failed(cause: &str) -> Error {
    Error::new(Errno::Io, "client process", cause).remedy("its own message is above")
}

impl Crew {
    /// Starts a process per job and waits until all are ready. Their local state goes below
    /// `state`.
    pub(crate) fn ready(jobs: &[Job], state: &Path) -> Result<Self> {
        let mut crew = Self { members: Vec::new() };
        for job in jobs {
            crew.members.push(Member::start(job, state)?);
        }
        for member in &mut crew.members {
            member.expect(READY)?;
        }
        Ok(crew)
    }

    /// Starts the measured part of all members and waits until all have ended.
    pub(crate) fn go(mut self) -> Result<Together> {
        self.release()?;
        self.ended()
    }

    /// Waits until all released members have ended.
    pub(crate) fn ended(mut self) -> Result<Together> {
        let outcomes: Vec<JobOutcome> =
            self.members.iter_mut().map(Member::outcome).collect::<Result<_>>()?;
        Ok(Together::of(outcomes))
    }

    /// Tells all members a start on the machine's clock: `lead` from now. The first one learns when
    /// the rest have ended, and ends after them.
    pub(crate) fn go_around(mut self, lead: Duration) -> Result<Together> {
        let lead_ns = u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
        let start_ns = clock_ns().saturating_add(lead_ns);
        for member in &mut self.members {
            member.tell(&format!("go {start_ns}"))?;
        }
        let Some((first, others)) = self.members.split_first_mut() else {
            return Ok(Together::of(Vec::new()));
        };
        let mut outcomes: Vec<JobOutcome> =
            others.iter_mut().map(Member::outcome).collect::<Result<_>>()?;
        first.tell("end")?;
        outcomes.insert(0, first.outcome()?);
        Ok(Together::of(outcomes))
    }

    /// Tells all members a start on the machine's clock: `lead` from now.
    pub(crate) fn go_at(mut self, lead: Duration) -> Result<Together> {
        let lead_ns = u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
        let start_ns = clock_ns().saturating_add(lead_ns);
        for member in &mut self.members {
            member.tell(&format!("go {start_ns}"))?;
        }
        let outcomes: Vec<JobOutcome> =
            self.members.iter_mut().map(Member::outcome).collect::<Result<_>>()?;
        Ok(Together::of(outcomes))
    }

    /// Lets the first member do half of its work alone and the second half while the rest are at
    /// work. `at` is called before its start, at its half, and at its end.
    pub(crate) fn go_halves(mut self, mut at: impl FnMut() -> Result<()>) -> Result<Together> {
        let Some((first, others)) = self.members.split_first_mut() else {
            return Ok(Together::of(Vec::new()));
        };
        at()?;
        first.tell("go")?;
        first.expect(MIDDLE)?;
        at()?;
        for other in others.iter_mut() {
            other.tell("go")?;
        }
        for other in others.iter_mut() {
            other.expect(MIDDLE)?;
        }
        first.tell("go on")?;
        let mut outcomes = vec![first.outcome()?];
        for other in others {
            other.tell("end")?;
            outcomes.push(other.outcome()?);
        }
        at()?;
        Ok(Together::of(outcomes))
    }

    /// Lets one member after the other do its part.
    pub(crate) fn go_in_turn(mut self) -> Result<Together> {
        let mut outcomes = Vec::new();
        for member in &mut self.members {
            member.tell("go")?;
            outcomes.push(member.outcome()?);
        }
        Ok(Together::of(outcomes))
    }

    /// The first member's process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.members.first().map(|member| member.child.id())
    }

    /// Tells the members to go without waiting for their outcome.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| member.tell("go"))
    }
}

impl Together {
    fn of(outcomes: Vec<JobOutcome>) -> Self {
        let start = outcomes.iter().map(|outcome| outcome.start_ns).min().unwrap_or(0);
        let end = outcomes.iter().map(|outcome| outcome.end_ns).max().unwrap_or(0);
        Self { seconds: seconds_between(start, end), outcomes }
    }

    /// The first client's outcome.
    pub(crate) fn first(&self) -> Result<&JobOutcome> {
        self.outcomes.first().ok_or_else(|| failed("there was none"))
    }
}

impl Member {
    fn start(job: &Job, state: &Path) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["bench", "--worker"]).env("CUDELE_STATE", state);
        if let Some(user) = job.user {
            command.uid(user).gid(user);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(&error.to_string()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("it has no pipes"));
        };
        let mut member = Self { child, to, from: BufReader::new(from) };
        let text = serde_json::to_string(job).map_err(|error| failed(&error.to_string()))?;
        member.tell(&text)?;
        Ok(member)
    }

    fn tell(&mut self, text: &str) -> Result<()> {
        writeln!(self.to, "{text}").map_err(|error| failed(&error.to_string()))
    }

    fn line(&mut self) -> Result<String> {
        let mut text = String::new();
        let read = self.from.read_line(&mut text);
        if read.map_err(|error| failed(&error.to_string()))? == 0 {
            return Err(failed("it ended early"));
        }
        Ok(text.trim_end().to_owned())
    }

    /// The next thing that it says must be this.
    fn expect(&mut self, wanted: &str) -> Result<()> {
        let said = self.line()?;
        if said == wanted {
            return Ok(());
        }
        Err(failed(&format!("it said {said:?} and not {wanted:?}")))
    }

    fn outcome(&mut self) -> Result<JobOutcome> {
        let text = self.line()?;
        let outcome =
            serde_json::from_str(&text).map_err(|error| failed(&format!("{error}: {text}")))?;
        // Its memory is given back before the next one is measured.
        self.child.wait().map_err(|error| failed(&error.to_string()))?;
        Ok(outcome)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // One that has ended is only collected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
