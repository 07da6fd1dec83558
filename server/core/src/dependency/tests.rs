//! The whole state machine. `bench` drives it in virtual time; each submodule asks one kind of question.

mod bench;
mod bounds;
mod breaking;
mod decisions;
mod drill;
mod fairness;
mod history;
mod known_bugs;
mod promise;
mod seen;
mod signals;
mod waiting;
