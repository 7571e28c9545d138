//! What DataFusion needs for a session's statements: made for the first of them, given up while the session rests.
//!
//! It has the name of every function for each session, 34 of 40 KiB (55.2). A server has a thousand sessions, of which
//! few compute: the others keep what was set, no more.
//!
//! To copy these names takes longer than to look up a row, so what a statement has a copy of is the next one's, too.
//!
//! # Invariants
//! - What is made again is as it was: nothing but its configuration can have been changed.
//! - A copy is used again only if nothing was set since: a setting makes other options, which are compared by identity.
//! - A context that somebody else holds is not given up: what they set in it would be lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::config::ConfigOptions;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{FunctionRegistry, TaskContext};
use datafusion::prelude::SessionConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::error::Result;

/// Sessions of an engine that keep what they have while they rest, so that who asks one small statement after the other
/// does not wait for it to be made.
pub(crate) const KEPT: usize = 64;

/// The context of one session.
#[derive(Default)]
pub(crate) struct Held {
    state: Mutex<State>,
    copies: Copies,
}

/// What the last statement was planned and run with.
#[derive(Default)]
struct Copies {
    state: Mutex<Option<Arc<SessionState>>>,
    task: Mutex<Option<Arc<TaskContext>>>,
}

impl Copies {
    fn clear(&self) {
        *locked(&self.state) = None;
        *locked(&self.task) = None;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum State {
    /// To be made of what sessions begin with, and this configuration if it is another.
    Unmade(Option<SessionConfig>),
    /// And may it rest as it is?
    Made(SessionContext, Option<OwnedSemaphorePermit>),
    /// Made by somebody else, of tables that only it has.
    Given(SessionContext),
}

impl State {
    fn configuration(&self) -> Option<&SessionConfig> {
        match self {
            Self::Unmade(config) => config.as_ref(),
            Self::Made(..) | Self::Given(_) => None,
        }
    }
}

impl Held {
    pub(crate) fn given(context: SessionContext) -> Self {
        Self { state: Mutex::new(State::Given(context)), copies: Copies::default() }
    }

    /// The context, made with the configuration that it had, if it had one.
    pub(crate) fn get(
        &self,
        make: impl FnOnce(Option<SessionConfig>) -> SessionContext,
    ) -> SessionContext {
        let mut state = locked(&self.state);
        match &mut *state {
            State::Made(context, _) | State::Given(context) => context.clone(),
            State::Unmade(config) => {
                let made = make(config.take());
                *state = State::Made(made.clone(), None);
                made
            }
        }
    }

    /// The context if there is one now, or the configuration that it will be made with.
    ///
    /// Nobody's settings are waited for with the lock held: who holds them may come for the context.
    fn now(&self) -> Result<SessionContext, MutexGuard<'_, State>> {
        let state = locked(&self.state);
        match &*state {
            State::Made(context, _) | State::Given(context) => Ok(context.clone()),
            State::Unmade(_) => Err(state),
        }
    }

    /// What is set; `None` if nothing has been.
    pub(crate) fn configuration(&self) -> Option<SessionConfig> {
        match self.now() {
            Ok(context) => Some(context.copied_config()),
            Err(state) => state.configuration().cloned(),
        }
    }

    /// Changes what is set, of the `first` configuration if nothing has been.
    pub(crate) fn configure(
        &self,
        first: impl FnOnce() -> SessionConfig,
        change: impl FnOnce(&mut ConfigOptions),
    ) {
        match self.now() {
            Ok(context) => change(context.state_ref().write().config_mut().options_mut()),
            Err(mut state) => {
                let mut config = state.configuration().cloned().unwrap_or_else(first);
                change(config.options_mut());
                *state = State::Unmade(Some(config));
            }
        }
    }

    /// Gives the context up, unless it can have one of these places.
    pub(crate) fn rest(&self, places: &Arc<Semaphore>) {
        let mut state = locked(&self.state);
        let State::Made(context, place) = &mut *state else { return };
        if place.is_none() {
            *place = Arc::clone(places).try_acquire_owned().ok();
        }
        let inner = context.state_ref();
        // Somebody may be about to set something: there are this reference and the one that is held.
        if place.is_some() || Arc::strong_count(&inner) > 2 {
            return;
        }
        let config = inner.read().config().clone();
        *state = State::Unmade(Some(config));
        self.copies.clear();
    }

    /// What a statement is planned with, and this added to its configuration: the state of the one before, if nobody has
    /// it any more, or what is made of the `context`'s.
    pub(crate) fn planning<T: Send + Sync + 'static>(
        &self,
        context: &SessionContext,
        made: impl FnOnce(SessionState) -> SessionState,
        added: Arc<T>,
    ) -> Arc<SessionState> {
        let (options, runtime) = now_of(context);
        let is_as_now = |state: &&mut SessionState| {
            Arc::ptr_eq(state.config_options(), &options)
                && Arc::ptr_eq(state.runtime_env(), &runtime)
        };
        if let Some(shared) = &mut *locked(&self.copies.state)
            && let Some(state) = Arc::get_mut(shared).filter(is_as_now)
        {
            state.mark_start_execution();
            state.config_mut().set_extension(added);
            return Arc::clone(shared);
        }
        let mut state = made(context.state());
        state.config_mut().set_extension(added);
        let shared = Arc::new(state);
        *locked(&self.copies.state) = Some(Arc::clone(&shared));
        shared
    }

    /// What the operators of a statement are run with.
    pub(crate) fn task(&self, context: &SessionContext) -> Arc<TaskContext> {
        let (options, runtime) = now_of(context);
        let is_as_now = |task: &&Arc<TaskContext>| {
            Arc::ptr_eq(task.session_config().options(), &options)
                && Arc::ptr_eq(&task.runtime_env(), &runtime)
        };
        if let Some(task) = locked(&self.copies.task).as_ref().filter(is_as_now) {
            return Arc::clone(task);
        }
        let task = context.task_ctx();
        *locked(&self.copies.task) = Some(Arc::clone(&task));
        task
    }
}

/// What a copy must still have.
fn now_of(context: &SessionContext) -> (Arc<ConfigOptions>, Arc<RuntimeEnv>) {
    let state = context.state_ref();
    let state = state.read();
    (Arc::clone(state.config_options()), Arc::clone(state.runtime_env()))
}

impl Default for State {
    fn default() -> Self {
        Self::Unmade(None)
    }
}

/// As `SET` does: some functions hold what is set.
pub(crate) fn bind_functions(state: &mut SessionState) -> Result<()> {
    let options = Arc::clone(state.config_options());
    let functions = state.scalar_functions().values();
    let changed = functions.filter_map(|function| function.inner().with_updated_config(&options));
    for function in changed.collect::<Vec<_>>() {
        state.register_udf(Arc::new(function))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::pretty::pretty_format_batches;

    use super::*;
    use crate::SessionFacts;
    use crate::engine::session::for_tests;

    fn is_made(held: &Held) -> bool {
        matches!(*locked(&held.state), State::Made(..))
    }

    #[test]
    fn what_was_set_outlives_a_rest() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let first = for_tests(folder.path(), true);
        let rests: Vec<_> = (0..KEPT).map(|_| first.engine().session()).collect();
        for session in &rests {
            session.context();
            session.rest();
            assert!(is_made(&session.context));
        }
        let session = first.engine().session();
        session.set_fact("who", Some("anna"));
        assert!(!is_made(&session.context), "facts need no functions");
        let ask = |text: &str| {
            let rows = runtime.block_on(session.query(text)).unwrap();
            pretty_format_batches(&rows).unwrap().to_string()
        };
        ask("SET datafusion.execution.time_zone = '+02:00'");
        ask("SET uplake.labels = 'team=growth'");
        ask("SET uplake.timeout = '7s'");
        let times = "SELECT arrow_typeof(now()), to_timestamp('2026-11-28 10:00:00')";
        let before = ask(times);
        assert!(before.contains("+02:00"), "{before}");
        session.rest();
        assert!(!is_made(&session.context));
        assert_eq!(session.labels(), "team=growth");
        assert_eq!(session.timeout(), Some(std::time::Duration::from_secs(7)));
        assert!(!is_made(&session.context), "what is set can be asked without it");
        session.set_fact("where", Some("here"));
        assert_eq!(ask(times), before);
        let facts = SessionFacts::of(session.context().state_ref().read().config_options());
        assert_eq!((facts.get("who"), facts.get("where")), (Some("anna"), Some("here")));
        assert_eq!(first.labels(), "");

        // Whoever holds it may be about to set something.
        let held = session.context();
        session.rest();
        assert!(is_made(&session.context));
        drop(held);
        session.rest();
        assert!(!is_made(&session.context));
        // A place that is free again is taken.
        drop(rests);
        session.context();
        session.rest();
        assert!(is_made(&session.context));
    }

    #[test]
    fn copies_are_used_again_until_something_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let session = for_tests(folder.path(), true);
        let ask = |text: &str| runtime.block_on(session.query(text)).unwrap();
        let has_copy = || locked(&session.context.copies.state).is_some();
        let begun = |state: &SessionState| state.execution_props().query_execution_start_time;
        let (first, _) = session.query_state();
        let (began, task) = (begun(&first), session.task_context());
        let place = Arc::as_ptr(&first);
        // Another one meanwhile has a state of its own.
        let (second, _) = session.query_state();
        assert_ne!(Arc::as_ptr(&second), place);
        let place = Arc::as_ptr(&second);
        drop((first, second));
        let (third, _) = session.query_state();
        assert_eq!(Arc::as_ptr(&third), place);
        assert!(begun(&third) > began, "a statement has a time of its own");
        assert!(Arc::ptr_eq(&task, &session.task_context()));
        drop(third);
        for set in ["SET datafusion.execution.batch_size = 77", "SET uplake.timeout = '7s'"] {
            let before = session.task_context();
            ask(set);
            assert!(!Arc::ptr_eq(&before, &session.task_context()), "{set}");
        }
        assert_eq!(session.query_state().0.config().batch_size(), 77);
        assert_eq!(session.task_context().session_config().batch_size(), 77);
        let pool = |task: &TaskContext| Arc::clone(&task.runtime_env().disk_manager);
        let before = (pool(&session.task_context()), session.query_state().0.runtime_env().clone());
        ask("SET datafusion.runtime.temp_directory = '/tmp'");
        assert!(!Arc::ptr_eq(&before.0, &pool(&session.task_context())));
        assert!(!Arc::ptr_eq(&before.1, session.query_state().0.runtime_env()));
        session.context.rest(&Arc::new(Semaphore::new(0)));
        assert!(!has_copy() && !is_made(&session.context));
    }

    #[test]
    fn settings_of_the_runtime_are_kept_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let first = for_tests(folder.path(), true);
        let places = Arc::new(Semaphore::new(0));
        let session = first.engine().session();
        runtime.block_on(session.query("SET datafusion.runtime.temp_directory = '/tmp'")).unwrap();
        assert!(session.changed.lock().unwrap().contains_key("datafusion.runtime.temp_directory"));
        let all: Vec<_> = (0..KEPT).map(|_| first.engine().session()).collect();
        all.iter().for_each(|session| {
            session.context();
            session.rest();
        });
        session.rest();
        assert!(is_made(&session.context));
        session.context.rest(&places);
        assert!(!is_made(&session.context));
    }
}
