//! One history: a run, its lives, and what must hold whatever happened in them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ralph::agent;
use ralph::core::completion::Rule;
use ralph::core::event::{Class, Entry, Event, FailAction, Outcome, Purpose, Stamp};
use ralph::core::progress::{Progress, Tracker};
use ralph::core::rules::{Budget, RateLimit, Retry, RetryScope, Rules};
use ralph::core::stall::StallRule;
use ralph::core::tasks;
use ralph::core::tasks::ledger::Ledger;
use ralph::report::Reporter;
use ralph::run::driver::{self, Finish};
use ralph::run::spec::{AgentSpec, GuardrailSpec, PromptSource, RunSpec, ScmSpec, TasksSpec};

use crate::broken::{Fault, Through};
use crate::rng::Rng;
use crate::truth::{Fact, Truth, facts};
use crate::world::{Crash, Faults, SimWorld, task_list};

/// How often a run is resumed at most. In its last life nothing goes wrong.
const LIVES: u64 = 5;

/// What a history was like, for whoever counts them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) lives: u64,
    pub(crate) crashes: u64,
    pub(crate) agents: u64,
    /// Something of what agents said did not fit into the journal.
    pub(crate) left_out: bool,
    /// How often it was looked whether anything changed, and how often a lock that git had left was removed.
    pub(crate) looks: u64,
    pub(crate) unlocked: u64,
    /// How often an agent that was asked for a commit message changed something.
    pub(crate) meddled: u64,
    pub(crate) outcome: Option<Outcome>,
}

/// Lives through the history of a seed.
///
/// # Errors
/// Something happened that must never happen.
pub(crate) fn live(seed: u64, fault: Option<Fault>) -> Result<Told, String> {
    let truth = Rc::new(RefCell::new(Truth::default()));
    lives(seed, fault, &truth)
}

/// The same, with all that was recorded.
pub(crate) fn tell(seed: u64) -> (Result<Told, String>, String) {
    let truth = Rc::new(RefCell::new(Truth::default()));
    let told = lives(seed, None, &truth);
    let truth = truth.borrow();
    let facts = format!("{:?} {:?}", truth.starts, truth.checks);
    (told, format!("{}\n{facts}", String::from_utf8_lossy(&truth.journal)))
}

fn lives(seed: u64, fault: Option<Fault>, truth: &Rc<RefCell<Truth>>) -> Result<Told, String> {
    let mut rng = Rng::new(seed);
    let mut spec = spec(&mut rng);
    if spec.tasks.is_some() {
        truth.borrow_mut().stories = vec![false; 1 + rng.below(2) as usize];
        let list = tasks::parse(&task_list(&truth.borrow().stories)).map_err(|_| "a bad list")?;
        spec.tasks = spec.tasks.map(|tasks| TasksSpec { list, ..tasks });
    }
    let mut told = Told::default();
    let mut wall_ms = 1_794_774_472_000;
    for life in 1..=LIVES {
        told.lives = life;
        let faults = if life == LIVES { Faults::default() } else { faults(&mut rng) };
        let before = truth.borrow().journal.len();
        spec.progress = (before > 0).then(|| {
            let progress = progress(&truth.borrow().entries);
            Fault::remember(fault, progress)
        });
        {
            let mut truth = truth.borrow_mut();
            (truth.refused, truth.goes_on) = (false, true);
            // With no guardrails there is nobody to see it.
            truth.unseen &= !spec.guardrails.is_empty();
        }
        let (finish, world) = one_life(&spec, &mut rng, faults, wall_ms, truth, fault);
        wall_ms = world.wall_ms() + rng.below(86_400_000) as i64;
        check(&spec, truth, &world, before, finish)?;
        told.crashes += u64::from(finish.is_none());
        told.agents = truth.borrow().starts.len() as u64;
        told.left_out = left_out(&truth.borrow());
        told.looks = truth.borrow().looks.len() as u64;
        told.unlocked = truth.borrow().unlocked;
        told.meddled = truth.borrow().meddled;
        told.outcome = finish.map(|finish| finish.outcome);
        match told.outcome {
            // Cut off: what was half written is cut off as well, and it goes on.
            None => cut(&mut truth.borrow_mut().journal),
            // What ends with these has to be given more before it goes on.
            Some(
                Outcome::Complete
                | Outcome::CompleteScmFailed
                | Outcome::LimitReached
                | Outcome::Budget,
            ) => break,
            Some(_) => {}
        }
    }
    if told.outcome.is_none() {
        return Err("a life in which nothing went wrong did not come to its end".to_owned());
    }
    Ok(told)
}

fn cut(journal: &mut Vec<u8>) {
    let whole = journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    journal.truncate(whole);
}

fn progress(entries: &[(usize, Entry<'_>)]) -> Progress {
    let mut tracker = Tracker::default();
    entries.iter().for_each(|(_, entry)| tracker.fold(entry));
    tracker.end()
}

/// One process, from its start to its end or its death.
fn one_life(
    spec: &RunSpec,
    rng: &mut Rng,
    faults: Faults,
    wall_ms: i64,
    truth: &Rc<RefCell<Truth>>,
    fault: Option<Fault>,
) -> (Option<Finish>, SimWorld) {
    let mut world = SimWorld::new(Rng::new(rng.next()), faults, wall_ms, Rc::clone(truth));
    let seen = truth.borrow().journal.len();
    let watcher = Watcher { truth: Rc::clone(truth), pending: Vec::new(), seen };
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut through = Through::new(&mut world, fault);
        driver::run(spec, &mut through, vec![Box::new(watcher)], &[])
    }));
    let finish = match lived {
        Ok(finish) => Some(finish),
        Err(thrown) if thrown.is::<Crash>() => None,
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            truth.borrow_mut().violated(format!("a panic: {}", words.unwrap_or("?")));
            None
        }
    };
    (finish, world)
}

/// Sees what a person sees, and that it is in the journal by then.
struct Watcher {
    truth: Rc<RefCell<Truth>>,
    pending: Vec<u8>,
    /// How much of the journal has been shown.
    seen: usize,
}

impl Reporter for Watcher {
    fn event(&mut self, _at: Stamp, _event: &Event<'_>) {}

    fn line(&mut self, line: &[u8]) {
        self.pending.extend_from_slice(line);
        self.pending.push(b'\n');
    }

    fn flush(&mut self) {
        let mut truth = self.truth.borrow_mut();
        let recorded = truth.journal.get(self.seen..).unwrap_or_default();
        // Once something could not be written, whoever watches is the only one who is told.
        if recorded != self.pending && !truth.refused {
            truth.violated("something was shown that is not in the journal");
        }
        self.seen = truth.journal.len();
        self.pending.clear();
    }
}

/// What goes wrong in a life.
fn faults(rng: &mut Rng) -> Faults {
    Faults {
        crash_at: rng.maybe(60, |rng| 1 + rng.below(60)),
        full: rng.maybe(10, |rng| {
            let from = rng.below(40);
            (from, from + 1 + rng.below(20))
        }),
        misbehaviour: rng.pick(&[0, 10, 40]),
        company: rng.chance(30),
        jumps: rng.chance(20),
    }
}

/// What a run is to do.
fn spec(rng: &mut Rng) -> RunSpec {
    let gates = rng.chance(25);
    let retries = rng.below(3) as u32;
    let budget = |rng: &mut Rng| Budget {
        cost_usd: rng.maybe(30, |rng| rng.below(150) as f64 / 100.0 + 0.01),
        tokens: rng.maybe(15, |rng| 500 + rng.below(8_000)),
        duration_ms: rng.maybe(15, |rng| 1_000 + rng.below(60_000)),
    };
    let guardrail = |n: u64, rng: &mut Rng| GuardrailSpec {
        command: format!("check {n}"),
        fail_action: rng.pick(&[FailAction::Append, FailAction::Prepend]),
        hint: None,
        timeout_ms: rng.maybe(70, |_| 5_000),
    };
    let tasks = gates.then(|| {
        let list = tasks::parse(&task_list(&[false])).expect("a list");
        TasksSpec {
            path: "/p/ralph/tasks.json".into(),
            name: "tasks.json".to_owned(),
            ledger: Ledger::new(&list),
            list,
            check_first: false,
            snapshots: None,
        }
    });
    RunSpec {
        command: "run",
        run_id: "20261115-202752-0000".to_owned(),
        directory: "/p".into(),
        ralph_dir: "/p/.ralph".into(),
        agent: AgentSpec {
            adapter: agent::by_name("claude").expect("an adapter"),
            program: "claude".to_owned(),
            flags: Vec::new(),
            model: None,
            autonomous: true,
            sandboxed: false,
            guarded: false,
            files: Vec::new(),
            stream: true,
            prompt_via: None,
            keep_background: false,
            env: Vec::new(),
            args: None,
            response_filter: None,
            stderr_is_said: false,
            interactive: false,
        },
        prompt: PromptSource::Text("Do it.".to_owned()),
        empty_prompt: false,
        variables: None,
        required: Vec::new(),
        promised: Vec::new(),
        settings_files: Vec::new(),
        iteration_line: false,
        completion: Rule::Response("DONE".to_owned()),
        guardrails: (0..rng.below(3)).map(|n| guardrail(n, rng)).collect(),
        output_truncate_chars: 200,
        scm: rng.maybe(40, |_| ScmSpec {
            program: "git".to_owned(),
            tasks: vec![vec!["commit".to_owned()], vec!["push".to_owned()]],
        }),
        tasks,
        rules: Rules {
            max_iterations: 1 + rng.below(4) as u32,
            exit_at_limit: 1,
            exit_without_prompt: 2,
            retry: Retry {
                scope: if rng.chance(70) {
                    RetryScope::SameIteration { retries }
                } else {
                    RetryScope::NextIteration { failures: retries + 1 }
                },
                backoff_ms: 1_000,
                backoff_cap_ms: 8_000,
                exit_code: 4,
            },
            retry_empty: rng.chance(50),
            inactivity_ms: rng.maybe(60, |_| 10_000),
            inactivity_fails: rng.chance(50),
            iteration_timeout_ms: rng.maybe(30, |_| 20_000),
            result_grace_ms: Some(5_000),
            rate_limit: RateLimit { wait: rng.chance(80), max_wait_ms: 60_000 },
            budget: budget(rng),
            iteration_budget: budget(rng),
            guardrails: Vec::new(),
            scm: Vec::new(),
            scm_timeout_ms: rng.maybe(50, |_| 100_000),
            gates,
            stall: rng
                .maybe(40, |rng| StallRule::stopping_after(rng.below(4) as u32))
                .unwrap_or_default(),
        },
        term_pauses: rng.chance(20),
        done_stands: false,
        progress: None,
        // Mostly enough, now and then next to nothing.
        journal_bytes: rng.pick(&[0, u64::MAX, 30_000]),
        notify: None,
        display_filter: None,
    }
}

/// What must hold after every life.
fn check(
    spec: &RunSpec,
    truth: &Rc<RefCell<Truth>>,
    world: &SimWorld,
    before: usize,
    finish: Option<Finish>,
) -> Result<(), String> {
    let mut truth = truth.borrow_mut();
    if let Some(violation) = truth.violation.take() {
        return Err(violation);
    }
    let whole = truth.read();
    if truth.journal.len() < before || whole < before {
        return Err("the journal lost what it held".to_owned());
    }
    let facts = facts(&truth.entries);
    if let Some(finish) = finish {
        if !world.is_idle() {
            return Err("something is still running at the end".to_owned());
        }
        if matches!(finish.outcome, Outcome::Complete | Outcome::CompleteScmFailed) {
            completion(spec, &truth)?;
        }
        if finish.outcome == Outcome::Complete && spec.scm.is_some() && truth.dirty {
            return Err("complete with something that was not committed".to_owned());
        }
        if finish.outcome == Outcome::Stalled {
            stall(spec, &truth)?;
        }
        let said = facts.iter().rev().find_map(|(_, fact)| match fact {
            Fact::RunEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        if said != Some(finish.outcome) && !truth.refused {
            return Err(format!("it ended as {:?} and the journal says {said:?}", finish.outcome));
        }
    }
    order(spec, &facts, truth.has_holes)?;
    room(spec, &truth)?;
    if !truth.has_holes {
        decided(spec, &facts)?;
    }
    paid_once(&truth, &facts)?;
    feedback(&truth, &facts)
}

/// Nothing is complete unless all that has a say in it agrees.
fn completion(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    if truth.unseen {
        return Err("complete with what no guardrail has seen".to_owned());
    }
    let all_pass = |index| truth.checks.contains(&(index, true));
    if !(0..spec.guardrails.len()).all(all_pass) || truth.checks.iter().any(|(_, passed)| !passed) {
        return Err(format!("complete with guardrails {:?}", truth.checks));
    }
    match &spec.tasks {
        Some(_) if !truth.stories.iter().all(|passes| *passes) => {
            Err("complete with a story that does not pass".to_owned())
        }
        None if !truth.claimed => Err("complete though no agent said so".to_owned()),
        _ => Ok(()),
    }
}

/// A loop is stopped for getting nowhere only if it got nowhere.
fn stall(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    let Some(limit) = spec.rules.stall.stop_after else {
        return Err("stalled, and nobody had asked for that".to_owned());
    };
    let looks = truth.looks.iter().rev().take(limit as usize + 1);
    let changed = looks.clone().any(|look| Some(look) != truth.looks.last());
    if changed && spec.guardrails.is_empty() {
        return Err(format!("stalled with changes: {:?}", truth.looks));
    }
    Ok(())
}

/// Iterations in order and within the limit, one agent at a time, and nobody starts on a budget that is
/// used up. On a full disk ends may be missing.
fn order(spec: &RunSpec, facts: &[(usize, Fact)], has_holes: bool) -> Result<(), String> {
    let (mut iteration, mut next, mut ended, mut open) = (0, 1, 0, false);
    let (mut cost, mut tokens) = (0.0, 0_u64);
    let mut running: Option<(f64, u64)> = None;
    // One that was cut off may be brought to its end, and another attempt at it made for that.
    let (mut cut, mut left_open) = (false, false);
    let budget = &spec.rules.budget;
    for (_, fact) in facts {
        match fact {
            Fact::RunStarted => {
                if let Some((more, used)) = running.take() {
                    (cost, tokens) = (cost + more, tokens + used);
                }
                // What was cut off is begun again.
                left_open |= open || cut;
                (open, cut, next) = (false, false, ended + 1);
            }
            Fact::IterationStarted { number, most } => {
                // One of which nothing could be written any more is known by the next.
                let follows = *number == next || (has_holes && *number > next);
                if !follows || (open && !has_holes) {
                    return Err(format!("iteration {number}, not {next}, or one in another"));
                }
                next = number + 1;
                if number > most || *most != spec.rules.max_iterations {
                    return Err(format!("iteration {number} of {most}"));
                }
                if std::mem::take(&mut cut) {
                    return Err(format!("iteration {iteration} was cut off, and the run went on"));
                }
                (iteration, open, left_open) = (*number, true, false);
            }
            Fact::AgentStarted { .. } => {
                if running.is_some() || !(open || left_open) {
                    return Err("an agent beside another, or outside of an iteration".to_owned());
                }
                let used_up = budget.cost_usd.is_some_and(|most| cost >= most)
                    || budget.tokens.is_some_and(|most| tokens >= most);
                if used_up {
                    return Err(format!("an agent after ${cost} and {tokens} tokens: {budget:?}"));
                }
                running = Some((0.0, 0));
            }
            Fact::Used { cost, tokens } => running = running.map(|_| (*cost, *tokens)),
            Fact::AgentEnded { cost: more, tokens: used, .. } => {
                (cost, tokens) = (cost + more, tokens + used);
                running = None;
            }
            Fact::IterationEnded { cut_off, .. } => {
                (open, cut, left_open) = (false, *cut_off, false);
                if !cut_off {
                    (ended, next) = (iteration, iteration + 1);
                }
            }
            // One that was cut off may not be begun again.
            Fact::RunEnded { iterations, .. } => {
                let odd = ![iteration, ended].contains(iterations) || open;
                if odd && !has_holes {
                    return Err(format!("it ended after {iterations} iterations, not {ended}"));
                }
            }
            Fact::GuardrailEnded { .. } | Fact::Feedback { .. } | Fact::Retrying { .. } => {}
        }
    }
    Ok(())
}

fn left_out(truth: &Truth) -> bool {
    truth.entries.iter().any(|(_, entry)| matches!(entry.event, Event::LeftOut { .. }))
}

/// What agents say has its room in the journal, and no more than that, however much they say: a part of it for
/// each iteration, as much for what a report needs, and the end of what was left out.
fn room(spec: &RunSpec, truth: &Truth) -> Result<(), String> {
    const LEAST: u64 = 4 * 1024;
    const TAIL: u64 = 16 * 1024;
    // Of an agent that fits in nowhere: what it has used, and that something was left out.
    const FIGURES: u64 = 2 * 1024;
    let (mut lives, mut agents, mut iterations, mut said, mut start) = (0, 0, 0, 0, 0);
    for (end, entry) in &truth.entries {
        let length = (end - std::mem::replace(&mut start, *end)) as u64;
        match entry.event {
            Event::RunStarted { .. } => lives += 1,
            Event::IterationStarted { .. } => iterations += 1,
            Event::AgentStarted { .. } => agents += 1,
            Event::Text { .. }
            | Event::ToolEnded { .. }
            | Event::Output { .. }
            | Event::Usage(_)
            | Event::Result { .. }
            | Event::Session { .. } => said += length,
            _ => {}
        }
    }
    if spec.journal_bytes == u64::MAX {
        return Ok(());
    }
    // Who goes on is given what is left; here each life is given the whole.
    let share = (spec.journal_bytes / 4).max(LEAST);
    let most =
        spec.journal_bytes * lives + iterations * 2 * LEAST + agents * (TAIL.min(share) + FIGURES);
    if said > most {
        return Err(format!("{said} bytes of {agents} agents in {iterations} iterations: {most}"));
    }
    Ok(())
}

/// What has decided that a run is over ends it, however often it is cut off before it can say so: nobody pays
/// for another agent.
fn decided(spec: &RunSpec, facts: &[(usize, Fact)]) -> Result<(), String> {
    let rules = &spec.rules;
    let is_failure = |class: Class| match class {
        Class::Failed | Class::ContextExhausted => true,
        Class::Empty => rules.retry_empty,
        Class::TimedOut => rules.inactivity_fails,
        _ => false,
    };
    // Failures that were counted, and what the last end decides.
    let (mut failures, mut counted, mut over) = (0, false, None);
    for (_, fact) in facts {
        match fact {
            Fact::AgentStarted { .. } => {
                counted = false;
                if let Some(over) = over {
                    return Err(format!("an agent was started though {over}"));
                }
            }
            Fact::AgentEnded { purpose: Purpose::Work, class, .. } => match class {
                Class::Credentials => over = Some("its credentials were refused"),
                class if is_failure(*class) && failures + 1 >= rules.retry.fatal() => {
                    over = Some("the last one had failed for good");
                }
                Class::Answered => failures = 0,
                _ => {}
            },
            Fact::Retrying { failures: by_now } => (failures, counted) = (*by_now, true),
            Fact::IterationEnded { complete: true, .. } => over = Some("the work was complete"),
            // Where nothing failed that counts.
            Fact::IterationEnded { cut_off: false, .. } if !counted => failures = 0,
            Fact::RunEnded { outcome, .. } => {
                if over == Some("the work was complete")
                    && !matches!(outcome, Outcome::Complete | Outcome::CompleteScmFailed)
                {
                    return Err(format!("the work was complete, and it ended as {outcome:?}"));
                }
                over = None;
                if *outcome != Outcome::Interrupted {
                    failures = 0;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// An answer is paid for once, and so is a commit message: whoever finds one in the journal goes on with it, and
/// starts no other agent before the checks of it have come to their end.
fn paid_once(truth: &Truth, facts: &[(usize, Fact)]) -> Result<(), String> {
    for start in &truth.starts {
        let (mut iteration, mut is_answered, mut has_message) = (0, false, false);
        for (_, fact) in facts.iter().take_while(|(end, _)| *end <= start.journal) {
            match fact {
                // The end of the one before may not have been written on a full disk.
                Fact::IterationStarted { number, .. } if *number > iteration => {
                    (iteration, is_answered, has_message) = (*number, false, false);
                }
                Fact::AgentEnded { purpose: Purpose::Work, class, .. } => {
                    (is_answered, has_message) = (*class == Class::Answered, false);
                }
                Fact::AgentEnded { has_message: given, .. } => has_message = *given,
                Fact::IterationEnded { cut_off: false, .. } => {
                    (is_answered, has_message) = (false, false);
                }
                _ => {}
            }
        }
        match start.purpose {
            Purpose::Work if is_answered => {
                return Err("an agent was started beside an answer that is not checked".to_owned());
            }
            Purpose::CommitMessage if has_message => {
                return Err("an agent was asked for a commit message that is there".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every agent is told exactly what guardrails said last: nothing is lost, nothing told twice.
fn feedback(truth: &Truth, facts: &[(usize, Fact)]) -> Result<(), String> {
    for start in truth.starts.iter().filter(|start| start.purpose == Purpose::Work) {
        let mut last: &[u64] = &[];
        for (_, fact) in facts.iter().take_while(|(end, _)| *end <= start.journal) {
            if let Fact::Feedback { failures, .. } = fact {
                last = failures;
            }
        }
        let (mut told, mut expected) = (start.told.clone(), last.to_vec());
        told.sort_unstable();
        expected.sort_unstable();
        if told != expected {
            return Err(format!("an agent was told of failures {told:?}, not of {expected:?}"));
        }
    }
    // What an iteration ended with is what its guardrails said. On a full disk it may be begun again.
    if truth.has_holes {
        return Ok(());
    }
    let (mut failed, mut last) = (0, 0);
    for (_, fact) in facts {
        match fact {
            Fact::AgentEnded { purpose: Purpose::Work, .. } | Fact::RunStarted => failed = 0,
            Fact::GuardrailEnded { passed } => failed += usize::from(!passed),
            Fact::Feedback { parts, .. } => last = *parts,
            Fact::IterationEnded { .. } if failed > last => {
                return Err(format!("{failed} guardrails failed, and {last} are told of"));
            }
            _ => {}
        }
    }
    Ok(())
}
