//! The course of one request through a server.

use types::bytes::{Malformed, Put, Reader};
use types::{Span, Tid};

use crate::Failure;
use crate::codec::{list, put_list, put_result, result};

/// The place of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TracePart {
    /// The state machine of the server.
    Server = 0,
    /// A write of the journal.
    Journal = 1,
    /// Another operation of the object store.
    Store = 2,
    /// Messages to other clients.
    Clients = 3,
}

impl TracePart {
    const ALL: [Self; 4] = [Self::Server, Self::Journal, Self::Store, Self::Clients];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Journal => "journal",
            Self::Store => "store",
            Self::Clients => "clients",
        }
    }
}

/// An event at the server between the arrival of a request and the end of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceStep {
    /// Since the arrival of the request.
    pub at: Span,
    /// Where.
    pub part: TracePart,
    /// The event, for a reader. At most [`TraceStep::TEXT_MAX`] bytes.
    pub text: String,
}

impl TraceStep {
    /// The longest text, in bytes.
    pub const TEXT_MAX: usize = 256;
    /// Steps in one message, at most.
    pub const STEPS_MAX: usize = 256;
}

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The request.
    pub tid: Tid,
    /// The steps in their order; `EPERM` if the peer may not trace, `EBUSY` if the server traces
    /// another request.
    pub steps: Result<Vec<TraceStep>, Failure>,
}

impl Traced {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.tid.0);
        put_result(out, &self.steps, |steps, out| {
            put_list(out, steps, |out, step| {
                out.put_varint(step.at.0);
                out.put_u8(step.part as u8);
                out.put_bytes(step.text.as_bytes());
            });
        });
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let tid = Tid(reader.varint()?);
        let steps = result(reader, |reader| {
            let offset = reader.offset();
            let steps = list(reader, step)?;
            let few = steps.len() <= TraceStep::STEPS_MAX;
            if few { Ok(steps) } else { Err(Malformed { offset, expected: "256 steps or fewer" }) }
        })?;
        Ok(Self { tid, steps })
    }
}

fn step(reader: &mut Reader<'_>) -> Result<TraceStep, Malformed> {
    let at = Span(reader.varint()?);
    let offset = reader.offset();
    let part = TracePart::ALL.get(usize::from(reader.u8()?)).copied();
    let part = part.ok_or(Malformed { offset, expected: "a part of the server" })?;
    let offset = reader.offset();
    let text = std::str::from_utf8(reader.bytes()?).ok();
    let text = text.filter(|text| text.len() <= TraceStep::TEXT_MAX);
    let text = text.ok_or(Malformed { offset, expected: "a text of 256 bytes or fewer" })?;
    Ok(TraceStep { at, part, text: text.to_owned() })
}
