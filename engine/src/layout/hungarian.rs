//! Cheapest assignment: rows to columns, each column at most once (the Hungarian method, O(rows^2 x columns)).

use alloc::vec;
use alloc::vec::Vec;

/// For each row, its column in the assignment with the least sum of `cost(row, column)`. There must be at least as many
/// columns as rows, and costs must stay below 2^50.
pub(super) fn cheapest(rows: usize, columns: usize, cost: impl Fn(usize, usize) -> i64) -> Vec<usize> {
    assert!(rows <= columns, "every row needs a column of its own");
    // Potentials of rows and columns, and the row (from 1) that owns each column (from 1); 0 is no row.
    let (mut of_row, mut of_column) = (vec![0_i64; rows + 1], vec![0_i64; columns + 1]);
    let mut owner = vec![0_usize; columns + 1];
    for row in 1..=rows {
        assert!(owner[0] < row, "rows are given columns one after the other");
        owner[0] = row;
        let path = augment(&mut of_row, &mut of_column, &owner, &cost);
        let (mut column, came_from) = path;
        while column != 0 {
            owner[column] = owner[came_from[column]];
            column = came_from[column];
        }
    }
    assert!(owner.iter().skip(1).filter(|row| **row > 0).count() == rows, "every row has a column of its own");
    let mut given = vec![0; rows];
    for (column, row) in owner.iter().enumerate().skip(1) {
        if *row > 0 {
            given[row - 1] = column - 1;
        }
    }
    given
}

/// The cheapest path from the row of column 0 to a free column: that column, and the predecessor of each column.
fn augment(
    of_row: &mut [i64],
    of_column: &mut [i64],
    owner: &[usize],
    cost: &impl Fn(usize, usize) -> i64,
) -> (usize, Vec<usize>) {
    let columns = of_column.len();
    let (mut least, mut came_from) = (vec![i64::MAX; columns], vec![0; columns]);
    let mut done = vec![false; columns];
    let mut here = 0;
    while owner[here] != 0 {
        done[here] = true;
        let row = owner[here];
        let (mut step, mut next) = (i64::MAX, 0);
        for column in (1..columns).filter(|c| !done[*c]) {
            let reduced = cost(row - 1, column - 1) - of_row[row] - of_column[column];
            if reduced < least[column] {
                (least[column], came_from[column]) = (reduced, here);
            }
            if least[column] < step {
                (step, next) = (least[column], column);
            }
        }
        for column in 0..columns {
            if done[column] {
                of_row[owner[column]] += step;
                of_column[column] -= step;
            } else {
                least[column] = least[column].saturating_sub(step);
            }
        }
        assert!(step < i64::MAX, "a column is free, since there are as many as rows");
        here = next;
    }
    (here, came_from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Rng;

    /// The least sum over all assignments, by trying them all.
    fn naive(costs: &[Vec<i64>], row: usize, taken: &mut Vec<bool>) -> i64 {
        if row == costs.len() {
            return 0;
        }
        let mut best = i64::MAX;
        for column in 0..taken.len() {
            if !taken[column] {
                taken[column] = true;
                best = best.min(costs[row][column] + naive(costs, row + 1, taken));
                taken[column] = false;
            }
        }
        best
    }

    #[test]
    fn no_assignment_is_cheaper() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            let columns = rng.between(1, 6) as usize;
            let rows = rng.between(1, columns as u64) as usize;
            let costs: Vec<Vec<i64>> =
                (0..rows).map(|_| (0..columns).map(|_| i64::from(rng.below(9) as u32)).collect()).collect();
            let given = cheapest(rows, columns, |r, c| costs[r][c]);
            let sum: i64 = given.iter().enumerate().map(|(row, column)| costs[row][*column]).sum();
            assert_eq!(sum, naive(&costs, 0, &mut vec![false; columns]));
        }
    }
}
