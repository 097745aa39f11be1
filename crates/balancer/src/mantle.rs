//! The environment of the paper: `MDSs` counted from 1, `targets`, and five hooks.
//!
//! All spellings of the paper, of its listings and of its published program are there. Where they
//! disagree, `docs/formats/balancer.md` decides.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value};

use crate::saved::{BYTES_MAX, Scalar};
use crate::script::{Machine, number, shown};
use crate::source::Sections;
use crate::view::is_load;
use crate::{BalancerSettings, BalancerView, Counts, Fault, FaultKind, Selector, State};

/// The load of Listing 1, to which the listings without a load refer.
const METALOAD: &str = "IWR";
const MDSLOAD: &str = "MDSs[i][\"all\"]";
const HOWMUCH: &str = "{\"big_first\"}";

/// A piece of code that is an expression, or sets a variable of the hook's name.
#[derive(Debug)]
pub(crate) struct Hook {
    function: Function,
    sets: Option<&'static str>,
}

impl Hook {
    /// Compiles `text` as an expression, else as statements that set `name`.
    pub(crate) fn compile(
        machine: &Machine,
        name: &'static str,
        text: &str,
    ) -> Result<Self, Fault> {
        // The word goes where only blanks and comments stand before: lines keep their numbers.
        let code = text.lines().position(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("--")
        });
        let Some(code) = code else {
            return Err(Fault::new(FaultKind::Syntax, format!("the section `{name}` is empty")));
        };
        let expression: String = text
            .lines()
            .enumerate()
            .map(|(at, line)| {
                let word = if at == code { "return " } else { "" };
                format!("{word}{line}\n")
            })
            .collect();
        if let Ok(function) = machine.compile(&expression) {
            return Ok(Self { function, sets: None });
        }
        Ok(Self { function: machine.compile(text)?, sets: Some(name) })
    }

    pub(crate) fn value(&self, machine: &Machine) -> Result<Value, Fault> {
        let result = machine.call(&self.function)?;
        match self.sets {
            None => Ok(result),
            Some(name) => machine.lua.globals().get(name).map_err(|error| machine.fault(&error)),
        }
    }

    pub(crate) fn load(&self, machine: &Machine, name: &str) -> Result<f64, Fault> {
        let value = self.value(machine)?;
        number(&value).filter(|load| is_load(*load)).ok_or_else(|| {
            let message = format!("{name} is {}, not a number that is not negative", shown(&value));
            Fault::new(FaultKind::Result, message)
        })
    }
}

/// The pieces of a policy, compiled in one engine.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) metaload: Hook,
    mdsload: Hook,
    when_where: Function,
    howmuch: Hook,
}

impl Code {
    pub(crate) fn compile(machine: &Machine, sections: &Sections) -> Result<Self, Fault> {
        let text = |section: &Option<String>, default: &str| {
            section.clone().unwrap_or_else(|| default.to_owned())
        };
        Ok(Self {
            metaload: Hook::compile(machine, "metaload", &text(&sections.metaload, METALOAD))?,
            mdsload: Hook::compile(machine, "mdsload", &text(&sections.mdsload, MDSLOAD))?,
            when_where: compile_when(machine, &sections.when_where)?,
            howmuch: Hook::compile(machine, "howmuch", &text(&sections.howmuch, HOWMUCH))?,
        })
    }
}

/// `when` may end in an open `if … then` (Listings 1 to 3) or be complete (Listing 4).
fn compile_when(machine: &Machine, text: &str) -> Result<Function, Fault> {
    let open = match machine.compile(&format!("{text}end")) {
        Ok(function) => return Ok(function),
        Err(fault) => fault,
    };
    machine.compile(text).map_err(|complete| {
        // The earlier mistake is the real one; the later one is the missing or surplus end.
        if open.line.unwrap_or(u32::MAX) < complete.line.unwrap_or(u32::MAX) {
            open
        } else {
            complete
        }
    })
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// By rank, from 0.
    pub(crate) loads: Vec<f64>,
    pub(crate) targets: Vec<f64>,
    pub(crate) state: State,
    /// The script asked for a rank behind the last one, and went no further.
    pub(crate) no_neighbour: Option<Fault>,
}

/// The globals that change while a policy runs.
#[derive(Debug)]
pub(crate) struct Environment {
    mdss: Table,
    saved: Rc<RefCell<State>>,
    too_long: Rc<Cell<bool>>,
    beyond: Rc<Cell<bool>>,
}

impl Environment {
    /// Fills the globals in.
    pub(crate) fn build(
        lua: &Lua,
        view: &BalancerView,
        state: &State,
        settings: &BalancerSettings,
    ) -> mlua::Result<Self> {
        let globals = lua.globals();
        globals.set("whoami", view.whoami.0 + 1)?;
        globals.set("tick", view.tick_seconds)?;
        globals.set("movecost", view.move_seconds)?;
        globals.set("hottest", view.hottest())?;
        for (name, value) in view.auth.named() {
            globals.set(name, value)?;
        }
        let mdss = lua.create_table()?;
        let targets = lua.create_table()?;
        for metrics in &view.ranks {
            let one = lua.create_table()?;
            for (name, value) in metrics.named() {
                one.set(name, value)?;
            }
            one.set("nfiles", metrics.inodes)?;
            one.set("load", 0.0)?;
            mdss.push(one)?;
            targets.push(0.0)?;
        }
        let beyond = Rc::new(Cell::new(false));
        watch_the_end(lua, &mdss, view.ranks.len(), &beyond)?;
        globals.set("MDSs", &mdss)?;
        globals.set("targets", targets)?;
        for (names, which) in [(["max", "Max"], true), (["min", "Min"], false)] {
            let function = lua.create_function(move |_, (a, b): (f64, f64)| {
                Ok(if which { a.max(b) } else { a.min(b) })
            })?;
            for name in names {
                globals.set(name, &function)?;
            }
        }
        let saved = Rc::new(RefCell::new(state.clone()));
        let too_long = Rc::new(Cell::new(false));
        add_state(lua, &saved, &too_long, settings.state)?;
        Ok(Self { mdss, saved, too_long, beyond })
    }
}

/// `MDSs[#MDSs + 1]` is nothing, as in any table; that it was asked for is noted: Listing 1 does so
/// on the last rank, and is right but for that.
fn watch_the_end(
    lua: &Lua,
    mdss: &Table,
    ranks: usize,
    beyond: &Rc<Cell<bool>>,
) -> mlua::Result<()> {
    let meta = lua.create_table()?;
    let beyond = Rc::clone(beyond);
    let after = i64::try_from(ranks).unwrap_or(i64::MAX).saturating_add(1);
    let missing = move |_: &Lua, (_, key): (Table, Value)| {
        if key.as_i64() == Some(after) {
            beyond.set(true);
        }
        Ok(Value::Nil)
    };
    meta.set("__index", lua.create_function(missing)?)?;
    mdss.set_metatable(Some(meta))
}

fn add_state(
    lua: &Lua,
    saved: &Rc<RefCell<State>>,
    too_long: &Rc<Cell<bool>>,
    first: f64,
) -> mlua::Result<()> {
    let globals = lua.globals();
    let (writes, is_too_long) = (Rc::clone(saved), Rc::clone(too_long));
    let write = lua.create_function(move |_, value: Value| {
        let state = to_state(&value).map_err(mlua::Error::runtime)?;
        if state.encode().len() > BYTES_MAX {
            is_too_long.set(true);
            return Err(mlua::Error::runtime(format!("a state has at most {BYTES_MAX} bytes")));
        }
        *writes.borrow_mut() = state;
        Ok(())
    })?;
    let reads = Rc::clone(saved);
    let read = lua.create_function(move |lua, ()| match &*reads.borrow() {
        State::Nothing => Ok(Value::Number(first)),
        State::One(value) => to_lua(lua, value),
        State::Table(pairs) => {
            let table = lua.create_table()?;
            for (key, value) in pairs {
                table.raw_set(to_lua(lua, key)?, to_lua(lua, value)?)?;
            }
            Ok(Value::Table(table))
        }
    })?;
    for name in ["WRstate", "WRState", "wr_state", "WRSTATE"] {
        globals.set(name, &write)?;
    }
    for name in ["RDstate", "RDState", "rd_state", "RDSTATE"] {
        globals.set(name, &read)?;
    }
    Ok(())
}

fn to_lua(lua: &Lua, value: &Scalar) -> mlua::Result<Value> {
    match value {
        Scalar::Number(number) => Ok(Value::Number(*number)),
        Scalar::Text(text) => lua.create_string(text).map(Value::String),
        Scalar::Truth(truth) => Ok(Value::Boolean(*truth)),
    }
}

fn to_scalar(value: &Value) -> Result<Scalar, String> {
    if let Value::String(text) = value {
        return Ok(Scalar::Text(text.as_bytes().to_vec()));
    }
    if let Some(truth) = value.as_boolean() {
        return Ok(Scalar::Truth(truth));
    }
    let number = number(value).filter(|number| number.is_finite()).map(Scalar::Number);
    number.ok_or_else(|| {
        format!(
            "a state is a number, a text, a truth value or a flat table of them, not {}",
            shown(value)
        )
    })
}

fn to_state(value: &Value) -> Result<State, String> {
    if value.is_nil() {
        return Ok(State::Nothing);
    }
    let Value::Table(table) = value else { return to_scalar(value).map(State::One) };
    let mut pairs = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        pairs.push((to_scalar(&key)?, to_scalar(&value)?));
        if pairs.len() > BYTES_MAX {
            return Err(format!("a state has at most {BYTES_MAX} bytes"));
        }
    }
    // The engine's order is of no account: equal tables are equal bytes.
    pairs
        .sort_by(|a, b| order(&a.0).partial_cmp(&order(&b.0)).unwrap_or(std::cmp::Ordering::Equal));
    Ok(State::Table(pairs))
}

fn order(key: &Scalar) -> (u8, f64, Vec<u8>) {
    match key {
        Scalar::Number(number) => (0, *number, Vec::new()),
        Scalar::Text(text) => (1, 0.0, text.clone()),
        Scalar::Truth(truth) => (2, f64::from(u8::from(*truth)), Vec::new()),
    }
}

/// Runs the hooks in the order of the paper's figure 6, up to `where`.
pub(crate) fn run(
    machine: &Machine,
    code: &Code,
    environment: &Environment,
    view: &BalancerView,
    sections: &Sections,
) -> Result<Ran, Fault> {
    let globals = machine.lua.globals();
    let set =
        |name: &str, value: f64| globals.set(name, value).map_err(|error| machine.fault(&error));
    let auth = metaload(machine, code, &view.auth)?;
    let all = metaload(machine, code, &view.all)?;
    set_counts(machine, &view.auth)?;
    for (names, value) in
        [(["authmetaload", "authmetadata"], auth), (["allmetaload", "allmetadata"], all)]
    {
        for name in names {
            set(name, value)?;
        }
    }
    let mut ran = Ran::default();
    for i in 1..=view.ranks.len() {
        globals.set("i", i).map_err(|error| machine.fault(&error))?;
        let load = code.mdsload.load(machine, &format!("the load of rank {i}"))?;
        let entry: Result<Table, _> = environment.mdss.raw_get(i);
        let stored = entry.and_then(|one| one.raw_set("load", load));
        stored.map_err(|error| machine.fault(&error))?;
        ran.loads.push(load);
    }
    globals.set("i", Value::Nil).map_err(|error| machine.fault(&error))?;
    set("total", ran.loads.iter().sum())?;
    environment.beyond.set(false);
    let is_last = usize::from(view.whoami.0) + 1 == view.ranks.len();
    match machine.call(&code.when_where) {
        Ok(_) => {}
        Err(fault) if fault.kind == FaultKind::Script && is_last && environment.beyond.get() => {
            ran.state = environment.saved.borrow().clone();
            ran.targets = vec![0.0; view.ranks.len()];
            ran.no_neighbour = Some(fault);
            return Ok(ran);
        }
        Err(fault) => return Err(fault),
    }
    if environment.too_long.get() {
        let message = format!("the state has more than {BYTES_MAX} bytes");
        return Err(Fault::new(FaultKind::Result, message));
    }
    ran.state = environment.saved.borrow().clone();
    let targets: Value = globals.get("targets").map_err(|error| machine.fault(&error))?;
    let lines = &sections.target_lines;
    let read = read_targets(&targets, view.ranks.len(), 1).map_err(|wrong| wrong.in_lines(lines));
    match read {
        Ok(targets) => ran.targets = targets,
        // `targets[whoami + 1]` on the last rank, as in Listing 3.
        Err(fault) if is_last && fault.message.starts_with(&beyond(view.ranks.len(), 1)) => {
            ran.targets = vec![0.0; view.ranks.len()];
            ran.no_neighbour = Some(fault);
        }
        Err(fault) => return Err(fault),
    }
    Ok(ran)
}

impl Fault {
    /// Names the lines that may have caused a wrong result: the engine only knows the result.
    fn in_lines(mut self, lines: &[u32]) -> Self {
        match lines {
            [] => {}
            [line] => self.line = Some(*line),
            [first, ..] => {
                self.line = Some(*first);
                let others: Vec<String> = lines.iter().map(ToString::to_string).collect();
                self.message += &format!(" (`targets` is set in lines {})", others.join(", "));
            }
        }
        self
    }
}

/// How a fault about a rank behind the last one begins.
fn beyond(ranks: usize, first: usize) -> String {
    format!("a target for rank {}, ", ranks + first)
}

/// Reads the decision: one number for each rank, counted from `first`.
pub(crate) fn read_targets(value: &Value, ranks: usize, first: usize) -> Result<Vec<f64>, Fault> {
    let wrong = |message: String| Err(Fault::new(FaultKind::Result, message));
    let Value::Table(table) = value else {
        return wrong(format!("the targets are {}, not a table", shown(value)));
    };
    let mut targets = vec![0.0; ranks];
    for pair in table.pairs::<Value, Value>() {
        let Ok((key, value)) = pair else { return wrong("the targets cannot be read".to_owned()) };
        let rank = number(&key).filter(|rank| rank.fract() == 0.0);
        let Some(rank) = rank else {
            return wrong(format!("a target for `{}`, which is no rank", shown(&key)));
        };
        let place = (0..ranks).find(|at| same(*at + first, rank));
        let Some(target) = place.and_then(|at| targets.get_mut(at)) else {
            let last = ranks + first - 1;
            return wrong(format!("a target for rank {rank}, but ranks are {first} to {last}"));
        };
        let Some(load) = number(&value).filter(|load| is_load(*load)) else {
            let shown = shown(&value);
            return wrong(format!(
                "the target for rank {rank} is {shown}, not a number that is not negative"
            ));
        };
        *target = load;
    }
    Ok(targets)
}

fn same(rank: usize, wanted: f64) -> bool {
    u32::try_from(rank).is_ok_and(|rank| f64::from(rank) == wanted)
}

fn set_counts(machine: &Machine, counts: &Counts) -> Result<(), Fault> {
    let globals = machine.lua.globals();
    for (name, value) in counts.named() {
        globals.set(name, value).map_err(|error| machine.fault(&error))?;
    }
    Ok(())
}

/// The load of one fragment or subtree.
pub(crate) fn metaload(machine: &Machine, code: &Code, counts: &Counts) -> Result<f64, Fault> {
    set_counts(machine, counts)?;
    code.metaload.load(machine, "the metadata load")
}

/// The names of selectors that `howmuch` gives.
pub(crate) fn howmuch(machine: &Machine, code: &Code) -> Result<Vec<Selector>, Fault> {
    let value = code.howmuch.value(machine)?;
    let wrong = |message: String| Fault::new(FaultKind::Result, message);
    let Value::Table(table) = &value else {
        return Err(wrong(format!("howmuch is {}, not a list of selectors", shown(&value))));
    };
    let mut selectors = Vec::new();
    for name in table.sequence_values::<Value>() {
        let name = name.map_err(|error| machine.fault(&error))?;
        let Value::String(text) = &name else {
            return Err(wrong(format!("howmuch names {}, not a selector", shown(&name))));
        };
        selectors.push(Selector::named(&text.to_string_lossy())?);
        if selectors.len() > SELECTORS_MAX {
            return Err(wrong(format!("howmuch names more than {SELECTORS_MAX} selectors")));
        }
    }
    if selectors.is_empty() {
        return Err(wrong("howmuch names no selector".to_owned()));
    }
    Ok(selectors)
}

/// The most selectors that are tried at each level.
const SELECTORS_MAX: usize = 16;
