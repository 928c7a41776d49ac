//! Whether GitHub's silence is suspicious: no webhook for long within business hours.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::policy::{DayOfWeek, WebhookSilence};

/// Whether no webhook has come for the configured time within the current business hours. Nights and weekends do not count.
pub fn is_silent(silence: &WebhookSilence, last_webhook: Option<Timestamp>, now: Timestamp) -> bool {
    if silence.minutes == 0 {
        return false;
    }
    let Some(began) = business_hours_began(silence, now) else { return false };
    let since = last_webhook.map_or(began, |last| last.max(began));
    now.duration_since(since) >= SignedDuration::from_mins(silence.minutes.into())
}

/// When the business hours that include `now` began.
fn business_hours_began(silence: &WebhookSilence, now: Timestamp) -> Option<Timestamp> {
    let today = TimeZone::UTC.to_datetime(now).date();
    // Business hours that end on the next day may have begun yesterday.
    [Some(today), today.yesterday().ok()].into_iter().flatten().find_map(|day| {
        let began = starts_at(day, silence.from_hour)?;
        let is_current = began <= now && now.duration_since(began) < length(silence);
        (is_current && silence.days.contains(&day_of_week(day))).then_some(began)
    })
}

fn starts_at(day: Date, hour: u32) -> Option<Timestamp> {
    let midnight = day.at(0, 0, 0, 0).to_zoned(TimeZone::UTC).ok()?.timestamp();
    midnight.checked_add(SignedDuration::from_hours(hour.into())).ok()
}

fn length(silence: &WebhookSilence) -> SignedDuration {
    let (from, to) = (i64::from(silence.from_hour), i64::from(silence.to_hour));
    SignedDuration::from_hours(if to > from { to - from } else { to + 24 - from })
}

fn day_of_week(day: Date) -> DayOfWeek {
    match day.weekday() {
        Weekday::Monday => DayOfWeek::Mon,
        Weekday::Tuesday => DayOfWeek::Tue,
        Weekday::Wednesday => DayOfWeek::Wed,
        Weekday::Thursday => DayOfWeek::Thu,
        Weekday::Friday => DayOfWeek::Fri,
        Weekday::Saturday => DayOfWeek::Sat,
        Weekday::Sunday => DayOfWeek::Sun,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn silence_counts_only_within_business_hours() {
        let default = WebhookSilence::default();
        // 2026-11-16 is a Monday.
        for (last, now, silent) in [
            // Within business hours, since the last webhook.
            (Some("2026-11-16T09:00:00Z"), "2026-11-16T10:59:00Z", false),
            (Some("2026-11-16T09:00:00Z"), "2026-11-16T11:00:00Z", true),
            // The weekend and the night do not count.
            (Some("2026-11-13T17:00:00Z"), "2026-11-16T07:30:00Z", false),
            (Some("2026-11-13T17:00:00Z"), "2026-11-16T09:00:00Z", true),
            (Some("2026-11-16T12:00:00Z"), "2026-11-16T18:00:00Z", false),
            (Some("2026-11-13T12:00:00Z"), "2026-11-14T12:00:00Z", false),
            // Not a single webhook ever.
            (None, "2026-11-16T08:59:00Z", false),
            (None, "2026-11-16T09:00:00Z", true),
            // A webhook from the future, by another machine's clock.
            (Some("2026-11-16T12:00:30Z"), "2026-11-16T12:00:00Z", false),
        ] {
            assert_eq!(is_silent(&default, last.map(at), at(now)), silent, "{last:?} {now}");
        }
        let off = WebhookSilence { minutes: 0, ..default };
        assert!(!is_silent(&off, None, at("2026-11-16T12:00:00Z")));
    }

    #[test]
    fn business_hours_may_end_on_the_next_day() {
        // 16:00 to 01:00 UTC is a working day in California; Friday's ends on Saturday.
        let california = WebhookSilence { from_hour: 16, to_hour: 1, minutes: 60, ..WebhookSilence::default() };
        let silent = |now| is_silent(&california, Some(at("2026-11-13T20:00:00Z")), at(now));
        assert!(silent("2026-11-14T00:59:00Z"));
        assert!(!silent("2026-11-14T01:00:00Z"));
        assert!(!silent("2026-11-14T17:30:00Z"), "no business hours begin on a Saturday");
        let always = WebhookSilence { from_hour: 0, to_hour: 24, ..WebhookSilence::default() };
        assert!(is_silent(&always, None, at("2026-11-16T23:59:00Z")));
        let around_the_clock = WebhookSilence { from_hour: 7, to_hour: 7, ..WebhookSilence::default() };
        assert!(is_silent(&around_the_clock, None, at("2026-11-17T06:59:00Z")));
    }
}
