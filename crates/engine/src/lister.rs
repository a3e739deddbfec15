//! Listings of the cores' state: each core walks through its own, a few entries in each turn.

use crate::mailbox::Mailbox;

/// Number of entries that a core examines in a turn for a listing, whatever is listed: less than
/// 10 µs a turn.
pub const LIST_BUDGET: usize = 8;

/// Maximum number of turns for a [`ListPage`]: other queries have their turn after it.
pub const LIST_TURNS_MAX: usize = 4096;

/// Maximum number of rows on a [`ListPage`].
pub const LIST_ROWS_MAX: usize = 256;

/// A query for the rows `R` of one core, and a walk through its state, page by page.
///
/// Control sends it with an empty page. The core's [`Lister`] continues the walk at the cursor `C`
/// and sends the page back when it is full. Control then sends it again, unless the walk
/// [is over](Self::is_over). The work in progress and the memory therefore don't depend on the size
/// of the state. `hotloop_ops::Listing` does control's part.
#[derive(Debug)]
pub struct ListPage<Q, C, R> {
    query: Q,
    /// Position to continue from; `None` once everything was examined.
    cursor: Option<C>,
    rows: ListRows<R>,
    turns_left: usize,
}

/// The rows on a [`ListPage`].
#[derive(Debug)]
pub struct ListRows<R> {
    found: Vec<R>,
    matching_count: u64,
    wanted: usize,
}

impl<Q, C: Default, R> ListPage<Q, C, R> {
    /// A walk from the beginning, with a first page of at most `wanted` rows. Allocates the memory
    /// for all of its pages.
    #[must_use]
    pub fn new(query: Q, wanted: usize) -> Self {
        let found = Vec::with_capacity(LIST_ROWS_MAX);
        let rows = ListRows { found, matching_count: 0, wanted };
        Self { query, cursor: Some(C::default()), rows, turns_left: LIST_TURNS_MAX }
    }
}

impl<Q, C, R> ListPage<Q, C, R> {
    /// Empties the page for the next part of the walk, with at most `wanted` rows; more matches are
    /// only counted.
    pub fn turn_page(&mut self, wanted: usize) {
        self.rows.found.clear();
        (self.rows.matching_count, self.rows.wanted) = (0, wanted);
        self.turns_left = LIST_TURNS_MAX;
    }

    /// Whether everything was examined.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.cursor.is_none()
    }

    /// The rows on this page.
    #[must_use]
    pub fn rows(&self) -> &[R] {
        &self.rows.found
    }

    /// Number of matches among the entries examined for this page, listed or not.
    #[must_use]
    pub const fn matching_count(&self) -> u64 {
        self.rows.matching_count
    }

    /// Continues the walk by one step. Returns whether the page is complete.
    fn advance(&mut self, walk: impl FnOnce(&Q, C, usize, &mut ListRows<R>) -> Option<C>) -> bool {
        let Self { query, cursor, rows, turns_left } = self;
        let Some(from) = cursor.take() else { return true };
        *cursor = walk(query, from, LIST_BUDGET, rows);
        *turns_left = turns_left.saturating_sub(1);
        cursor.is_none() || *turns_left == 0 || rows.is_full()
    }
}

impl<R> ListRows<R> {
    /// Counts a match, and adds it to the page if the client wants more rows. A step may add one
    /// row for each entry of its budget; rows beyond that may find no place on the page, and are
    /// only counted.
    pub fn push(&mut self, row: R) {
        self.matching_count += 1;
        if self.found.len() < self.wanted.min(LIST_ROWS_MAX) {
            self.found.push(row);
        }
    }

    /// Whether the next step may find more rows than the page has room for: no memory is allocated
    /// on a core.
    const fn is_full(&self) -> bool {
        self.found.len() < self.wanted && self.found.len() + LIST_BUDGET > LIST_ROWS_MAX
    }
}

type Pages<Q, C, R> = Mailbox<Box<ListPage<Q, C, R>>, Box<ListPage<Q, C, R>>>;

/// A core's end of a listing: a field of the stage that has the state. It fills memory that came
/// with the query, and every step is bounded.
///
/// `Q` is the query, such as a filter, `C` the position in the state, such as `hotloop_flow`'s
/// `Cursor`, and `R` a row.
///
/// ```
/// use hotloop_engine::{ListPage, Lister, mailbox};
/// use hotloop_stage::Core;
///
/// let (mut asker, mailboxes) = mailbox(1);
/// // In the stage's factory:
/// let mut lister = Lister::new(mailboxes.open(&Core::new(0, 1))?);
/// let squares: Vec<u64> = (0..100).map(|number| number * number).collect();
///
/// asker.ask(0, Box::new(ListPage::new("the even ones", 10))).expect("the core has no other query");
/// let page = loop {
///     // In the stage's `tick`:
///     lister.tick(|_query: &&str, from: usize, budget, rows| {
///         let end = squares.len().min(from + budget);
///         squares[from..end].iter().filter(|it| *it % 2 == 0).for_each(|it| rows.push(*it));
///         (end < squares.len()).then_some(end)
///     });
///     if let Some(page) = asker.answer(0) {
///         break page;
///     }
/// };
/// assert!(page.is_over());
/// assert_eq!((page.rows().len(), page.rows()[9], page.matching_count()), (10, 324, 50));
/// # Ok::<(), hotloop_stage::Error>(())
/// ```
#[derive(Debug)]
pub struct Lister<Q, C, R> {
    mailbox: Pages<Q, C, R>,
    /// The page in progress.
    page: Option<Box<ListPage<Q, C, R>>>,
}

impl<Q, C, R> Lister<Q, C, R> {
    /// Takes queries from `mailbox`.
    #[must_use]
    pub const fn new(mailbox: Pages<Q, C, R>) -> Self {
        Self { mailbox, page: None }
    }

    /// Whether a page is in progress: for `has_work` of a
    /// [`BurstStage`](hotloop_stage::BurstStage), which keeps an idle core from sleeping meanwhile.
    #[must_use]
    pub const fn has_work(&self) -> bool {
        self.page.is_some()
    }

    /// Continues with the query in progress, or with the next one. Call this between bursts, in the
    /// stage's `tick`. It costs one read if there is no query.
    ///
    /// `walk` gets the query, the position to continue from and the number of entries to examine,
    /// [`LIST_BUDGET`]. It adds a row for each that matches, and returns the next position, or
    /// `None` at the end. `Table::scan` of `hotloop_flow` does just that.
    #[inline]
    pub fn tick(&mut self, walk: impl FnOnce(&Q, C, usize, &mut ListRows<R>) -> Option<C>) {
        let Some(mut page) = self.page.take().or_else(|| self.mailbox.request()) else { return };
        if page.advance(walk) {
            self.mailbox.answer(page);
        } else {
            self.page = Some(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Asker, mailbox};
    use hotloop_stage::Core;

    type Page = Box<ListPage<usize, usize, usize>>;

    /// Lists the multiples of the query among the first `count` numbers, in one page.
    fn fill(
        asker: &mut Asker<Page, Page>,
        lister: &mut Lister<usize, usize, usize>,
        (page, count): (Page, usize),
    ) -> (Page, usize) {
        asker.ask(0, page).unwrap();
        for turn_count in 1.. {
            lister.tick(|factor, from, budget, rows| {
                let end = count.min(from + budget);
                (from..end).filter(|it| it % factor == 0).for_each(|it| rows.push(it));
                (end < count).then_some(end)
            });
            if let Some(page) = asker.answer(0) {
                assert!(!lister.has_work());
                return (page, turn_count);
            }
            assert!(lister.has_work());
        }
        unreachable!("a page ends")
    }

    #[test]
    fn pages_end_when_they_are_full_or_took_long_and_every_match_is_on_one() {
        let (mut asker, mailboxes) = mailbox(1);
        let mut lister = Lister::new(mailboxes.open(&Core::new(0, 1)).unwrap());
        const COUNT: usize = 100_000;
        for (factor, limit, page_count) in [
            // The last step that has room fills a page.
            (1, usize::MAX, COUNT.div_ceil(LIST_ROWS_MAX)),
            // Only the number of turns ends a page.
            (1, 10, COUNT.div_ceil(LIST_TURNS_MAX * LIST_BUDGET)),
            (COUNT, 10, COUNT.div_ceil(LIST_TURNS_MAX * LIST_BUDGET)),
        ] {
            let mut page = Box::new(ListPage::new(factor, limit));
            let (mut found, mut matching_count, mut pages) = (Vec::new(), 0, 0);
            while !page.is_over() {
                page.turn_page(limit - found.len());
                let turn_count;
                (page, turn_count) = fill(&mut asker, &mut lister, (page, COUNT));
                assert!(turn_count <= LIST_TURNS_MAX);
                assert_eq!(page.rows.found.capacity(), LIST_ROWS_MAX, "memory was allocated");
                found.extend_from_slice(page.rows());
                matching_count += page.matching_count();
                pages += 1;
            }
            let expected = (0..COUNT).step_by(factor);
            assert_eq!(matching_count, expected.len() as u64);
            assert!(found.iter().copied().eq(expected.take(limit)));
            assert_eq!(pages, page_count, "{factor} {limit}");
        }
    }

    #[test]
    fn a_step_that_finds_more_than_its_budget_allocates_nothing() {
        let mut page = ListPage::new((), usize::MAX);
        let is_complete = page.advance(|(), (), _, rows| {
            (0..2 * LIST_ROWS_MAX).for_each(|number| rows.push(number));
            None
        });
        assert!(is_complete && page.is_over());
        assert_eq!((page.rows().len(), page.matching_count()), (LIST_ROWS_MAX, 512));
        assert_eq!(page.rows.found.capacity(), LIST_ROWS_MAX);
        // A page that was not turned is returned as it is.
        assert!(page.advance(|(), (), _, _| unreachable!("the walk is over")));
    }
}
