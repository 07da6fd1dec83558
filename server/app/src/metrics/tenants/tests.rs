use super::*;

fn counts(operations: u64) -> TenantCounts {
    TenantCounts { logical: operations, physical: operations, ..TenantCounts::default() }
}

/// Of `total` operations, those of the named tenants.
fn usage(total: u64, count: u64, rows: &[(&str, u64)]) -> TenantUsage {
    let row = |(name, operations): &(&str, u64)| TenantRow {
        name: (*name).into(),
        counts: counts(*operations),
        waiting: 1,
    };
    TenantUsage { total: counts(total), waiting: 5, count, rows: rows.iter().map(row).collect() }
}

/// Operations of every row, that of the others last.
fn rows(book: &Book) -> Vec<u64> {
    let entry = &book.dependencies["d"];
    entry.rows.values().chain([&entry.others]).map(|row| row.sum.logical).collect()
}

#[test]
fn a_tenant_that_lost_its_place_goes_on_where_it_was() {
    let (mut book, d) = (Book::new(Some(2), 1 << 20), Arc::from("d"));
    book.take_in(&d, &usage(10, 1, &[("a", 10)]));
    book.take_in(&d, &usage(12, 0, &[]));
    assert_eq!(rows(&book), [10, 2], "what it did since is of nobody");
    book.take_in(&d, &usage(15, 1, &[("a", 3)]));
    assert_eq!(rows(&book), [13, 2], "it came back and counts from nothing");
}

#[test]
fn a_tenant_that_was_among_the_others_takes_nothing_from_them() {
    let (mut book, d) = (Book::new(Some(1), 1 << 20), Arc::from("d"));
    book.take_in(&d, &usage(30, 3, &[("a", 10)]));
    assert_eq!((rows(&book), book.overflowed()), (vec![10, 20], 2));
    book.take_in(&d, &usage(37, 3, &[("a", 12), ("b", 15)]));
    assert_eq!(rows(&book), [12, 0, 25], "its five of this time are not told apart either");
    book.take_in(&d, &usage(40, 3, &[("a", 12), ("b", 18)]));
    assert_eq!((rows(&book), book.overflowed()), (vec![12, 3, 25], 2));
}

#[test]
fn a_newcomer_among_tenants_that_all_have_rows_shows_all_it_did() {
    let (mut book, d) = (Book::new(Some(9), 1 << 20), Arc::from("d"));
    book.take_in(&d, &usage(10, 1, &[("a", 10)]));
    book.take_in(&d, &usage(14, 2, &[("a", 10), ("b", 4)]));
    assert_eq!(rows(&book), [10, 4, 0]);
    let others = &book.dependencies["d"].others;
    assert_eq!(others.waiting, 3, "of five, one each has a row");
}

#[test]
fn without_bytes_everything_is_elsewhere() {
    let (mut book, d) = (Book::new(Some(9), 0), Arc::from("d"));
    book.take_in(&d, &usage(10, 1, &[("a", 10)]));
    assert_eq!((rows(&book), book.elsewhere), (vec![0], counts(10)));
    let mut families = Vec::new();
    book.families(&mut families);
    assert_eq!(families.iter().map(|family| family.get_metric().len()).sum::<usize>(), 3 + 4 + 6 + 1);
}
