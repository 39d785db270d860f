//! One history: a run, and its lives.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use ralph_agents as agents;
use ralph_driver::driver::{self, RunExit};
use ralph_driver::run_spec::{AgentSpec, GuardrailSpec, PromptSource, RunSpec, TasksSpec};
use ralph_engine::completion::CompletionRule;
use ralph_engine::prompt::OutputLimits;
use ralph_engine::rules::{Budget, QuestionMode, RateLimit, Retry, RetryScope, Rules};
use ralph_engine::stall::StallRule;
use ralph_events::event::{Entry, Event, FailAction, Isolation, Outcome};
use ralph_git::ScmSpec;
use ralph_report::{Recorded, Reporter};
use ralph_store::requests::Request;
use ralph_tasks as tasks;
use ralph_tasks::ledger::Ledger;

use crate::broken::{Fault, Through};
use crate::promises::check;
use crate::rng::Rng;
use crate::truth::Truth;
use crate::world::{AgentKind, Crash, Faults, SimWorld, task_list};

/// How often a run is resumed at most. In its last life nothing goes wrong.
const LIVES: u64 = 5;

/// Statistics of one history.
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

/// The journal of a seed.
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry<'static>>,
    /// Entries are missing because the disk was full.
    pub(crate) has_holes: bool,
}

/// Returns the journal that the run of a seed writes.
pub(crate) fn journal(seed: u64) -> Journal {
    let truth = Rc::new(RefCell::new(Truth::default()));
    lives(seed, None, &truth).expect("a run without violations");
    let mut truth = truth.borrow_mut();
    truth.read();
    let entries = std::mem::take(&mut truth.entries);
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    Journal { entries, has_holes: truth.has_holes }
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
        spec.resumed = (before > 0).then(|| Fault::remember(fault, truth.borrow().state()));
        {
            let mut truth = truth.borrow_mut();
            (truth.refused, truth.goes_on) = (false, true);
            truth.signals.clear();
            truth.stop_after = None;
            // A run that was killed accepts guidance.
            if before > 0 && rng.chance(30) {
                truth.send(|number| Request::Tell {
                    text: format!("guidance#{number}"),
                    now: false,
                    every: false,
                });
            }
            // Without guardrails it goes unnoticed.
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
            // Killed: the half-written line is truncated, and the run resumes.
            None => cut(&mut truth.borrow_mut().journal),
            // These outcomes need a higher limit before a resume.
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
        return Err("a process without faults did not finish".to_owned());
    }
    Ok(told)
}

fn cut(journal: &mut Vec<u8>) {
    let whole = journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    journal.truncate(whole);
}

/// One process, from its start to its end or its death.
fn one_life(
    spec: &RunSpec,
    rng: &mut Rng,
    faults: Faults,
    wall_ms: i64,
    truth: &Rc<RefCell<Truth>>,
    fault: Option<Fault>,
) -> (Option<RunExit>, SimWorld) {
    let agents = AgentKind::of(spec);
    let mut world = SimWorld::new(Rng::new(rng.next()), faults, wall_ms, agents, Rc::clone(truth));
    let seen = truth.borrow().journal.len();
    let watcher = Watcher { truth: Rc::clone(truth), pending: Vec::new(), seen, fault };
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut through = Through::new(&mut world, fault);
        through.numbers_from = seen as u64;
        driver::run(&Fault::misread(fault, spec), &mut through, vec![Box::new(watcher)], &[])
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
    fault: Option<Fault>,
}

impl Reporter for Watcher {
    fn event(&mut self, recorded: Recorded<'_>) {
        let line = [recorded.line, b"\n"].concat();
        self.pending.extend_from_slice(&Fault::miswrite(self.fault, &line));
    }

    fn flush(&mut self) {
        let mut truth = self.truth.borrow_mut();
        let recorded = truth.journal.get(self.seen..).unwrap_or_default();
        // After a failed write, only the display has the event.
        if recorded != self.pending && !truth.refused {
            truth.violated("an event was displayed that is not in the journal");
        }
        self.seen = truth.journal.len();
        self.pending.clear();
    }
}

/// Faults in one life of a run.
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

/// A random run specification.
fn spec(rng: &mut Rng) -> RunSpec {
    let gates = rng.chance(25);
    let retries = rng.below(3) as u32;
    let plain_text = rng.chance(20);
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
            accepted: false,
            snapshots: None,
        }
    });
    RunSpec {
        command: "run",
        name: None,
        run_id: "20261115-202752-0000".to_owned(),
        directory: "/p".into(),
        ralph_dir: "/p/.ralph".into(),
        agent: AgentSpec {
            adapter: agents::by_name("claude").expect("an adapter"),
            program: "claude".to_owned(),
            version: None,
            flags: Vec::new(),
            model: None,
            autonomous: true,
            sandboxed: false,
            git_directories: Vec::new(),
            has_hook: false,
            files: Vec::new(),
            stream: !plain_text,
            prompt_via: None,
            keep_background: false,
            env: Vec::new(),
            args: None,
            response_filter: None,
            stderr_counts_as_output: false,
            interactive: false,
        },
        isolation: Isolation::default(),
        prompt: PromptSource::Text("Do it.".to_owned()),
        empty_prompt: false,
        variables: None,
        required: Vec::new(),
        required_outputs: Vec::new(),
        settings_files: Vec::new(),
        show_iteration_in_prompt: false,
        completion: CompletionRule::Response("DONE".to_owned()),
        guardrails: (0..rng.below(3)).map(|n| guardrail(n, rng)).collect(),
        missing_signal: None,
        guardrail_output: OutputLimits { head: 200, tail: 100 },
        scm: rng.maybe(40, |_| ScmSpec {
            paths: Vec::new(),
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
            silent_model_ms: Some(12_000),
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
                .maybe(40, |rng| StallRule::stop_after(rng.below(4) as u32))
                .unwrap_or_default(),
            term_pauses: rng.chance(20),
            max_refusals: Rules::MAX_REFUSALS,
            check_done_ms: Some(Rules::CHECK_DONE_MS),
            notify: false,
            questions: rng.pick(&[QuestionMode::Continue, QuestionMode::Wait, QuestionMode::Off]),
        },
        completion_is_final: plain_text && rng.chance(70),
        resumed: None,
        // Mostly enough, now and then next to nothing.
        journal_bytes: rng.pick(&[0, u64::MAX, 30_000]),
        notify: rng.maybe(30, |_| "notify".to_owned()),
        questions_dir: None,
        display_filter: None,
    }
}

fn left_out(truth: &Truth) -> bool {
    truth.entries.iter().any(|(_, entry)| matches!(entry.event, Event::OutputOmitted { .. }))
}
