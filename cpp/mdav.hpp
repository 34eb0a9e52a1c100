// Partitions of whole records by distance: MDAV and V-MDAV.
#pragma once

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// How MDAV finds records: all of them give the same labels.
enum class MdavPath {
  automatic,  // by the number of records and attributes
  tree,       // k-d tree for everything
  scan,       // every record for everything, as the definition says
};

// MDAV: clusters of k records around the records farthest from the mean and from each other.
//
// Guarantee: labels as by the definition evaluated in double precision, with squared distances
//   summed over the attributes in order, means that are the correctly rounded exact sum divided by
//   the count, and every tie going to the lowest row index. The same for every path, number of
//   threads and instruction set. Every cluster has k to 2k-1 records.
// Requires: finite values, 1 <= k <= rows (InputError otherwise); labels has X.rows entries.
// Source: Domingo-Ferrer & Torra 2005; PAPERS.md, "Partitioners".
// Cost: the definition needs n^2/k distances; the tree visits a small share of them in low
// dimension.
void mdav(const MatrixView& X, index_t k, int threads, Control& control, label_t* labels,
          MdavPath path = MdavPath::automatic);

// V-MDAV: groups of k to 2k-1 records; a group of k goes on absorbing its nearest record e while
// d(e, group) < gamma d(e, nearest unassigned record).
//
// Guarantee: as mdav. The group starts with the k records nearest to the record farthest from the
//   mean of all records; a last unassigned record has no neighbour, so its distance to it is
//   infinite. Fewer than k leftovers join the group with the nearest mean (means before any
//   leftover joins; ties to the group created first).
// Requires: as mdav; gamma >= 0 and finite.
// Source: Solanas, Martinez-Balleste & Domingo-Ferrer 2006; PAPERS.md, "Partitioners".
// Cost: about n nearest-neighbour queries of the tree.
void vmdav(const MatrixView& X, index_t k, double gamma, int threads, Control& control,
           label_t* labels);

}  // namespace dpmicro
