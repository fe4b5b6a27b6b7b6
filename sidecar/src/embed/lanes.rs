//! Threads for the model.
//!
//! With enough texts, each lane runs whole batches on one thread: nothing waits inside a layer, which is faster than spreading each
//! layer over all threads. A single batch runs on all threads.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rten::ThreadPool;

use super::EmbedError;

/// The thread pools of one embedder, kept for its life. Calls from several threads share them.
pub(super) struct Lanes {
    wide: Arc<ThreadPool>,
    narrow: Vec<Arc<ThreadPool>>,
}

impl Lanes {
    pub(super) fn new(threads: NonZeroUsize) -> Lanes {
        let narrow: Vec<Arc<ThreadPool>> = (0..threads.get())
            .map(|_| Arc::new(ThreadPool::with_num_threads(1)))
            .collect();
        Lanes {
            wide: Arc::new(ThreadPool::with_num_threads(threads.get())),
            narrow,
        }
    }

    /// How many batches run at once.
    pub(super) fn count(&self) -> usize {
        self.narrow.len()
    }

    /// Runs `work(job, pool)` for each job in `0..jobs` and returns the results in the order of the jobs, or one of the errors.
    ///
    /// A panic in `work` is an error too: the engine must not take the process down with it.
    pub(super) fn run<T: Send>(
        &self,
        jobs: usize,
        work: impl Fn(usize, &Arc<ThreadPool>) -> Result<T, EmbedError> + Sync,
    ) -> Result<Vec<T>, EmbedError> {
        let pools = if jobs == 1 {
            std::slice::from_ref(&self.wide)
        } else {
            &self.narrow[..jobs.min(self.count())]
        };
        let next = AtomicUsize::new(0);
        let take_jobs = |pool: &Arc<ThreadPool>| -> Result<Vec<(usize, T)>, EmbedError> {
            let mut done = Vec::new();
            loop {
                let job = next.fetch_add(1, Ordering::Relaxed);
                if job >= jobs {
                    return Ok(done);
                }
                match work(job, pool) {
                    Ok(result) => done.push((job, result)),
                    Err(error) => {
                        next.store(jobs, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        };
        let outcomes: Vec<thread::Result<_>> = thread::scope(|scope| {
            let lanes: Vec<_> = pools
                .iter()
                .map(|pool| scope.spawn(|| take_jobs(pool)))
                .collect();
            lanes.into_iter().map(|lane| lane.join()).collect()
        });

        let mut results = Vec::with_capacity(jobs);
        for outcome in outcomes {
            let lane = outcome.map_err(|_| EmbedError::Run {
                reason: "the engine panicked (see the log)".to_owned(),
            })?;
            results.extend(lane?);
        }
        results.sort_unstable_by_key(|&(job, _)| job);
        Ok(results.into_iter().map(|(_, result)| result).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(threads: usize) -> Lanes {
        Lanes::new(NonZeroUsize::new(threads).expect("tests use at least one thread"))
    }

    #[test]
    fn results_come_back_in_the_order_of_the_jobs() {
        for threads in 1..=4 {
            for jobs in [0, 1, 2, 3, 50] {
                let results = lanes(threads)
                    .run(jobs, |job, _| Ok(job * job))
                    .expect("no job fails");
                assert_eq!(results, (0..jobs).map(|job| job * job).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_error_of_one_job_is_the_error_of_the_call() {
        for failing in [0, 7, 19] {
            let error = lanes(3)
                .run(20, |job, _| {
                    if job == failing {
                        Err(EmbedError::EmptyText { index: job })
                    } else {
                        Ok(())
                    }
                })
                .expect_err("one job fails");
            assert!(matches!(error, EmbedError::EmptyText { index } if index == failing));
        }
    }

    #[test]
    fn a_panic_of_one_job_is_an_error_and_the_lanes_live_on() {
        let lanes = lanes(2);
        for jobs in [1, 5] {
            let error = lanes
                .run(jobs, |job, _| {
                    if job == 0 {
                        panic!("broken layer")
                    } else {
                        Ok(())
                    }
                })
                .expect_err("job 0 panics");
            assert!(matches!(error, EmbedError::Run { .. }));
        }
        assert_eq!(
            lanes.run(3, |job, _| Ok(job)).expect("no job fails"),
            [0, 1, 2]
        );
    }
}
