//! Build logs: long enough to be truncated, and with the text that identifies each kind of failure.

use super::{FakeBuild, PlannedResult};
use crate::fakes::Fakes;

impl Fakes {
    /// The console output of a build so far.
    pub(crate) fn log_of(&self, build: &FakeBuild) -> String {
        let pull = self.github.pull(build.pr);
        let mut log = format!(
            "Started by an SCM change\nObtained Jenkinsfile from {}\nRunning on agent-7 in /home/jenkins/workspace/PR-{}\n",
            build.sha, pull.number
        );
        for step in 1..=40 {
            log.push_str(&format!("[INFO] Compiling module {step} of 40\n"));
        }
        if build.result.is_none() {
            return log;
        }
        log.push_str(match build.planned_result {
            PlannedResult::Good => "[INFO] Tests run: 412, Failures: 0, Errors: 0, Skipped: 3\nFinished: SUCCESS\n",
            PlannedResult::AgentLost => {
                "Cannot contact agent-7: java.lang.InterruptedException\nhudson.remoting.ChannelClosedException: Channel \"agent-7\": \
                 channel is already closed\nCaused by: java.nio.channels.ClosedChannelException\nFinished: FAILURE\n"
            }
            PlannedResult::Flaky => {
                "[ERROR] PaymentsIT.settles: java.net.SocketTimeoutException: connect timed out\n[ERROR] integration environment \
                 did not come up\nFinished: FAILURE\n"
            }
            PlannedResult::Broken => {
                "[ERROR] Tests run: 412, Failures: 1, Errors: 0, Skipped: 3\n[ERROR] PaymentsTest.rounds: expected:<10> but was:<9>\n\
                 java.lang.AssertionError\nFinished: UNSTABLE\n"
            }
            PlannedResult::Stopped | PlannedResult::Hung => "Click here to forcibly terminate running steps\nFinished: ABORTED\n",
        });
        log
    }
}
