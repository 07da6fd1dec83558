//! Where attempts come in: the model with a clock and a record of what it did.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Model, Reply, Verdict};
use crate::measure::{Answer, Recorder};
use crate::scenario::Scenario;

/// A dependency at work. Its time starts with the recorder's.
#[derive(Debug)]
pub struct Desk {
    model: Mutex<Model>,
    recorder: Arc<Recorder>,
}

impl Desk {
    /// A dependency that behaves like this.
    #[must_use]
    pub const fn new(model: Model, recorder: Arc<Recorder>) -> Self {
        Self { model: Mutex::new(model), recorder }
    }

    /// The dependency of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario, recorder: Arc<Recorder>) -> Self {
        let model = Model::new(&scenario.dependency, scenario.seed);
        Self::new(model.with_poison(scenario.traffic.poison_share), recorder)
    }

    /// Works an attempt off. Dropping the future hangs up: the work is done all the same.
    pub async fn take(&self, operation: u64, attempt: u32) -> Answer {
        let recorder = &self.recorder;
        recorder.arrived(attempt);
        let verdict = self.model.lock().arrive(recorder.now(), operation, attempt);
        let answer = match verdict {
            Verdict::Answered { at, reply } => {
                let mut work = Work { recorder, finished: false };
                tokio::time::sleep_until(recorder.started() + at).await;
                work.finished = true;
                match reply {
                    Reply::Good => Answer::Success,
                    Reply::Failed => Answer::Failure,
                    Reply::Wrong => Answer::Wrong,
                }
            }
            Verdict::QueueFull => Answer::QueueFull,
            Verdict::Limited { retry_after_s } => Answer::Limited { retry_after_s },
        };
        recorder.answered(answer);
        answer
    }
}

/// Notices that the caller hung up: it is dropped in its sleep.
struct Work<'a> {
    recorder: &'a Recorder,
    finished: bool,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.recorder.answered(Answer::Abandoned);
        }
    }
}
