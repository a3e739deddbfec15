//! Selection of the instructions that a table uses.

/// The instructions for comparing tags.
///
/// [`Table::new`](crate::Table::new) uses the [`best`](Self::best). All back-ends return the same
/// results; the choice exists to test them, and to count the instructions of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Plain words, on any processor.
    Scalar,
    /// 16 bytes at once: part of every x86_64.
    Sse2,
    /// The same with AVX2, BMI1, BMI2 and LZCNT, which most x86_64 processors of the last ten years
    /// have. For bursts of keys only: lookups of single keys use SSE2.
    Avx2,
    /// 16 bytes at once: part of every aarch64.
    Neon,
}

impl Backend {
    /// All back-ends, including those for other processors.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Sse2, Self::Avx2, Self::Neon];

    /// The fastest back-end for this processor.
    #[must_use]
    pub fn best() -> Self {
        [Self::Avx2, Self::Sse2, Self::Neon]
            .into_iter()
            .find(|backend| backend.is_available())
            .unwrap_or(Self::Scalar)
    }

    /// Whether this processor has the instructions.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            // Under Miri, lookups use the scalar back-end.
            Self::Sse2 => cfg!(all(target_arch = "x86_64", not(miri))),
            Self::Avx2 => has_avx2(),
            Self::Neon => cfg!(target_arch = "aarch64"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}
