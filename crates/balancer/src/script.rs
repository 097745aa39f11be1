//! One script engine for one decision: Luau in its sandbox, with budgets.
//!
//! Steps are counted where the engine can be interrupted: at every call, return and turn of a loop,
//! and inside pattern matching. The count depends on nothing but the script and its input, so a
//! decision can be repeated. It bounds what a script does, but not what one step costs (a step may
//! copy all the memory there is); whoever has a clock hands in a look at it ([`Expired`]), which is
//! asked at every step.
//!
//! Invariant: once a budget is used up every further step fails, so that no `pcall` of the script
//! can go on, and the decision is a fault whatever the script makes of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, StdLib, Value, Variadic, VmState};

use crate::fault::one_line;
use crate::{Fault, FaultKind};

/// The budget of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Steps of the script: calls, returns, turns of loops, positions of patterns.
    pub steps: u64,
    /// Memory of the script in bytes.
    pub memory_bytes: usize,
    /// Lines that a script may log; later lines are counted and dropped.
    pub log_lines: usize,
    /// Characters of a line; the rest is dropped.
    pub log_line_chars: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { steps: 300_000, memory_bytes: 4 << 20, log_lines: 200, log_line_chars: 500 }
    }
}

/// Says whether a decision has taken too long. The rank hands in a look at its clock; the simulator
/// and `balancer check` hand in [`Expired::never`].
#[derive(Clone)]
pub struct Expired(Rc<dyn Fn() -> bool>);

impl Expired {
    /// Asks `expired` at every step.
    #[must_use]
    pub fn when(expired: impl Fn() -> bool + 'static) -> Self {
        Self(Rc::new(expired))
    }

    /// Only steps are counted.
    #[must_use]
    pub fn never() -> Self {
        Self::when(|| false)
    }
}

impl fmt::Debug for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expired")
    }
}

/// A line that a policy logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How unimportant it is, 0 to 20 as in Ceph.
    pub level: u8,
    /// The text.
    pub text: String,
}

/// The part of the budget that is used up.
#[derive(Debug)]
struct Meter {
    limits: ScriptLimits,
    expired: Expired,
    steps: Cell<u64>,
    /// The line of the last step: an engine out of memory does not say where it was.
    line: Cell<Option<u32>>,
    over: Cell<Option<(FaultKind, Option<u32>)>>,
    log: RefCell<Vec<LogLine>>,
    dropped: Cell<u64>,
}

/// An engine. See the module documentation.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) lua: Lua,
    meter: Rc<Meter>,
}

/// The name of a policy's text in the engine's messages.
const CHUNK: &str = "policy";

/// Not for policies: functions that compile text, read the engine's state, or differ from run to
/// run.
const REMOVED: [&str; 8] = [
    "loadstring",
    "collectgarbage",
    "gcinfo",
    "getfenv",
    "setfenv",
    "newproxy",
    "require",
    "vector",
];

impl Machine {
    /// An engine with nothing in it but the language's libraries.
    pub(crate) fn new(limits: ScriptLimits, expired: &Expired) -> Result<Self, Fault> {
        let libraries = StdLib::COROUTINE
            | StdLib::TABLE
            | StdLib::STRING
            | StdLib::UTF8
            | StdLib::BIT
            | StdLib::MATH;
        let meter = Rc::new(Meter {
            limits,
            expired: expired.clone(),
            steps: Cell::new(0),
            line: Cell::new(None),
            over: Cell::new(None),
            log: RefCell::default(),
            dropped: Cell::new(0),
        });
        let build = || {
            let lua = Lua::new_with(libraries, LuaOptions::new())?;
            // Optimised code reads globals once, when it is loaded; here they change between calls.
            lua.set_compiler(Compiler::new().set_optimization_level(0));
            let globals = lua.globals();
            for name in REMOVED {
                globals.raw_set(name, Value::Nil)?;
            }
            // One call could copy two thousand million elements, and no step ends it.
            globals.raw_get::<mlua::Table>("table")?.raw_set("move", Value::Nil)?;
            let math: mlua::Table = globals.raw_get("math")?;
            for name in ["random", "randomseed"] {
                math.raw_set(name, Value::Nil)?;
            }
            lua.sandbox(true)?;
            Ok(lua)
        };
        let lua = build().map_err(|error| fault(&error, &meter))?;
        let machine = Self { lua, meter };
        machine.add_logging().map_err(|error| machine.fault(&error))?;
        Ok(machine)
    }

    /// Gives the script the result of `prepare`, then limits it: the environment itself does not
    /// count.
    pub(crate) fn prepare<T>(
        &self,
        prepare: impl FnOnce(&Lua) -> mlua::Result<T>,
    ) -> Result<T, Fault> {
        self.lua.set_memory_limit(0).map_err(|error| self.fault(&error))?;
        let made = prepare(&self.lua).map_err(|error| self.fault(&error))?;
        let limit = self.lua.used_memory() + self.meter.limits.memory_bytes;
        self.lua.set_memory_limit(limit).map_err(|error| self.fault(&error))?;
        let meter = Rc::clone(&self.meter);
        self.lua.set_interrupt(move |lua| meter.step(lua));
        Ok(made)
    }

    /// Compiles a piece of the policy.
    pub(crate) fn compile(&self, text: &str) -> Result<Function, Fault> {
        let chunk = self.lua.load(text).set_name(format!("={CHUNK}"));
        chunk.set_mode(ChunkMode::Text).into_function().map_err(|error| self.fault(&error))
    }

    /// Runs a function of the policy.
    pub(crate) fn call(&self, function: &Function) -> Result<Value, Fault> {
        let result = function.call::<Value>(()).map_err(|error| self.fault(&error));
        // A script that catches the error of its budget is over it all the same.
        match self.meter.over.get() {
            Some((kind, line)) => Err(self.meter.over_budget(kind, line)),
            None => result,
        }
    }

    /// The fault that an error of the engine means.
    pub(crate) fn fault(&self, error: &mlua::Error) -> Fault {
        fault(error, &self.meter)
    }

    /// Steps taken so far.
    pub(crate) fn steps(&self) -> u64 {
        self.meter.steps.get()
    }

    /// What was logged.
    pub(crate) fn log(&self) -> Vec<LogLine> {
        let mut log = self.meter.log.borrow().clone();
        let dropped = self.meter.dropped.get();
        if dropped > 0 {
            log.push(LogLine { level: 0, text: format!("{dropped} more lines were dropped") });
        }
        log
    }

    /// `BAL_LOG(level, …)` and `print(…)`: nothing of this leaves the decision but its log.
    fn add_logging(&self) -> mlua::Result<()> {
        let globals = self.lua.globals();
        let meter = Rc::clone(&self.meter);
        let log = move |_: &Lua, (level, words): (f64, Variadic<Value>)| meter.log(level, &words);
        globals.set("BAL_LOG", self.lua.create_function(log)?)?;
        let meter = Rc::clone(&self.meter);
        let print = move |_: &Lua, words: Variadic<Value>| meter.log(0.0, &words);
        globals.set("print", self.lua.create_function(print)?)
    }
}

impl Meter {
    fn step(&self, lua: &Lua) -> mlua::Result<VmState> {
        let line = lua.inspect_stack(0, |frame| frame.current_line()).flatten();
        let line = line.and_then(|line| u32::try_from(line).ok());
        if line.is_some() {
            self.line.set(line);
        }
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if self.over.get().is_none() {
            if steps > self.limits.steps {
                self.over.set(Some((FaultKind::Steps, self.line.get())));
            } else if (self.expired.0)() {
                self.over.set(Some((FaultKind::Time, self.line.get())));
            }
        }
        if self.over.get().is_some() {
            return Err(mlua::Error::runtime("the budget is used up"));
        }
        Ok(VmState::Continue)
    }

    fn over_budget(&self, kind: FaultKind, line: Option<u32>) -> Fault {
        let message = match kind {
            FaultKind::Time => "takes too long".to_owned(),
            FaultKind::Steps
            | FaultKind::Syntax
            | FaultKind::Script
            | FaultKind::Memory
            | FaultKind::Result
            | FaultKind::View => {
                format!("takes more than {} steps: does a loop end?", self.limits.steps)
            }
        };
        Fault::new(kind, message).at(line)
    }

    fn log(&self, level: f64, words: &[Value]) -> mlua::Result<()> {
        let mut log = self.log.borrow_mut();
        if log.len() >= self.limits.log_lines {
            self.dropped.set(self.dropped.get() + 1);
            return Ok(());
        }
        let mut text = String::new();
        for (at, word) in words.iter().enumerate() {
            if at > 0 {
                text.push(' ');
            }
            text.push_str(&shown(word));
            if text.len() > self.limits.log_line_chars.saturating_mul(4) {
                break;
            }
        }
        let text = one_line(&text, self.limits.log_line_chars);
        log.push(LogLine { level: level_of(level), text });
        Ok(())
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 0 to 20 before; what is no number becomes 0"
)]
fn level_of(level: f64) -> u8 {
    level.clamp(0.0, 20.0) as u8
}

/// The number that a value is. Texts that look like numbers are none.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value.as_integer() {
        #[allow(clippy::cast_precision_loss, reason = "the language itself has no other numbers")]
        Some(integer) => Some(integer as f64),
        None => value.as_number(),
    }
}

/// A value in the form of a log; addresses of tables are left out, because they differ from run to
/// run.
pub(crate) fn shown(value: &Value) -> String {
    if let Value::String(text) = value {
        let bytes = text.as_bytes();
        let start = bytes.get(..bytes.len().min(4096)).unwrap_or_default();
        return String::from_utf8_lossy(start).into_owned();
    }
    if let Some(number) = number(value) {
        return number.to_string();
    }
    match value.as_boolean() {
        Some(truth) => truth.to_string(),
        None => value.type_name().to_owned(),
    }
}

fn fault(error: &mlua::Error, meter: &Meter) -> Fault {
    if let Some((kind, line)) = meter.over.get() {
        return meter.over_budget(kind, line);
    }
    if let mlua::Error::SyntaxError { message, .. } = error {
        let (line, message) = located(message);
        return Fault::new(FaultKind::Syntax, message).at(line);
    }
    let text = error.to_string();
    if matches!(error, mlua::Error::MemoryError(_)) || text.contains("not enough memory") {
        let kib = meter.limits.memory_bytes >> 10;
        let message = format!("needs more than {kib} KiB of memory");
        return Fault::new(FaultKind::Memory, message).at(meter.line.get());
    }
    let (line, message) = located(&text);
    Fault::new(FaultKind::Script, message).at(line.or(meter.line.get()))
}

/// Takes `policy:12: ` out of a message.
fn located(text: &str) -> (Option<u32>, String) {
    let text = text.trim_start_matches("runtime error: ").trim_start_matches("syntax error: ");
    let Some((before, rest)) = text.split_once(&format!("{CHUNK}:")) else {
        return (None, text.to_owned());
    };
    let Some((line, after)) = rest.split_once(": ") else { return (None, text.to_owned()) };
    match line.parse() {
        Ok(line) => (Some(line), format!("{before}{after}")),
        Err(_) => (None, text.to_owned()),
    }
}
