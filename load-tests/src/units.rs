//! The few conversions between kinds of numbers that a load test needs, with their edges said once.

/// The nearest whole number; 0 for what is negative or no number.
#[must_use]
pub fn whole(value: f64) -> u64 {
    // A cast from a float saturates and turns NaN into 0, which is what is wanted.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let whole = value.round() as u64;
    whole
}

/// `part / whole`, or `None` if there is nothing to divide by.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_floats_have_a_whole_number_too() {
        assert_eq!(whole(2.5), 3);
        assert_eq!(whole(-1.0), 0);
        assert_eq!(whole(f64::NAN), 0);
        assert_eq!(whole(f64::INFINITY), u64::MAX);
    }

    #[test]
    fn a_ratio_needs_a_whole() {
        assert_eq!(ratio(1, 4), Some(0.25));
        assert_eq!(ratio(0, 0), None);
    }
}
