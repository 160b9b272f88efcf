// Sums of large operands over ranks of several hosts. Each column sums a part of the elements: from
// the first host on, a rank adds the operands of its host to what the host before it has sent. The
// last host has the sum, and it goes back. Of every element one number crosses to the next host,
// where messages between ranks would carry each rank's.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "weft/comm/hosts_round.h"

namespace weft::comm {
namespace {
constexpr int64_t most_elements = 1 << 16;  // of a piece: several are under way at a time

// A Piece is elements that are summed and sent together.
struct Piece {
  int owner = 0;             // the host whose rank of the column gets a scattered sum
  int64_t from = 0, to = 0;  // elements of the result, of the owner where it is scattered
  int64_t at = 0;            // elements in the buffer of the column
  Messages::Requests arriving = {}, returning = {};  // the sum so far, and the whole
  int64_t count() const { return to - from; }
};

class SumRound : public HostsRound {
 public:
  SumRound(Hosts& hosts, const CollectiveWork& work, bool is_used_under_way)
      : HostsRound(hosts, work, is_used_under_way),
        is_scattered_(work.what.kind == Collective::Kind::reduce_scatter) {
    if (is_scattered_)
      for (int host = 0; host < hosts_.count(); ++host) cut(host, 0, work_.elements);
    else
      cut(0, column_begin(neighbours_.rank()), column_begin(neighbours_.rank() + 1));
  }

  bool advance() override {
    if (!may_write() || !neighbours_.have_announced(ready, sequence_)) return false;
    if (!has_posted_) post_returning();
    for (; summed_ < pieces_.size(); ++summed_) {
      if (!messages_.have_ended(pieces_[summed_].arriving)) return false;
      sum(pieces_[summed_]);
    }
    for (; returned_ < pieces_.size(); ++returned_) {
      Piece& piece = pieces_[returned_];
      if (!messages_.have_ended(piece.returning)) return false;
      if (!is_scattered_ && !is_first())  // the sum goes back along the column
        send(shown() + work_.bytes(piece.from), work_.bytes(piece.count()), before(), Leg::back);
    }
    if (!is_scattered_) land();
    return messages_.have_ended(sends_);
  }

 private:
  bool is_first() const { return hosts_.host() == 0; }
  bool is_last() const { return hosts_.host() + 1 == hosts_.count(); }
  int before() const { return hosts_.in_column(hosts_.host() - 1); }
  int after() const { return hosts_.in_column(hosts_.host() + 1); }
  int64_t column_begin(int number) const { return work_.part(number, neighbours_.size()); }
  bool is_returned(const Piece& piece) const {
    return !is_last() && (!is_scattered_ || piece.owner == hosts_.host());
  }
  int64_t carried(int64_t elements) const {
    return elements * static_cast<int64_t>(size_of(carried_type(work_.dtype)));
  }

  void cut(int owner, int64_t first, int64_t end) {
    for (int64_t from = first; from < end; from += most_elements) {
      const int64_t to = std::min(end, from + most_elements);
      pieces_.push_back({.owner = owner, .from = from, .to = to, .at = column_elements_});
      column_elements_ += to - from;
    }
  }

  void post() override {
    summed_ = returned_ = 0;
    has_posted_ = false;
    column_ = messages_.borrow(carried(column_elements_));
    if (is_scattered_ && is_last()) scattered_ = messages_.borrow(work_.bytes(column_elements_));
    if (!is_first())
      for (Piece& piece : pieces_)
        receive(column_->data + carried(piece.at), carried(piece.count()), before(), Leg::out,
                piece.arriving);
    advance();
  }
  void post_returning() {
    has_posted_ = true;
    for (Piece& piece : pieces_)
      if (is_returned(piece))
        receive((is_scattered_ ? result_ : shown()) + work_.bytes(piece.from),
                work_.bytes(piece.count()),
                is_scattered_ ? hosts_.in_column(hosts_.count() - 1) : after(), Leg::back,
                piece.returning);
  }

  // Adds the operands of this host to what has come, and sends it on.
  void sum(const Piece& piece) {
    std::byte* const in_column = column_->data + carried(piece.at);
    const std::byte* const come = is_first() ? nullptr : in_column;
    if (!is_last()) {
      sum_into(in_column, come, piece);
      return send(in_column, carried(piece.count()), after(), Leg::out);
    }
    if (!is_scattered_ || piece.owner == hosts_.host())
      return sum_into((is_scattered_ ? result_ : shown()) + work_.bytes(piece.from), come, piece);
    std::byte* const whole = scattered_->data + work_.bytes(piece.at);
    sum_into(whole, come, piece);
    send(whole, work_.bytes(piece.count()), hosts_.in_column(piece.owner), Leg::back);
  }
  void sum_into(std::byte* result, const std::byte* come, const Piece& piece) {
    addresses_.clear();
    for (int number = 0; number < neighbours_.size(); ++number)
      addresses_.push_back(number == neighbours_.rank() ? operand_ : operand_of(number));
    const int64_t to_size = is_last() ? work_.bytes(1) : carried(1);
    const int64_t row = is_scattered_ ? work_.elements / work_.outer : work_.elements;
    const int64_t owner = hosts_.in_column(piece.owner);
    for_rows(piece.from, piece.to, row, [&](int64_t i, int64_t from, int64_t to) {
      const int64_t at = i * row + from - piece.from;
      const int64_t begin = is_scattered_ ? (i * work_.ranks + owner) * row : 0;
      combine_carried(
          {.carried = come == nullptr ? nullptr : come + carried(at), .is_last = is_last()},
          addresses_, result + at * to_size, begin + from, begin + to, work_.dtype,
          work_.what.combine);
    });
  }

  void take() override {
    messages_.await(*this);
    messages_.give_back(std::exchange(column_, nullptr));
    messages_.give_back(std::exchange(scattered_, nullptr));
    if (!is_scattered_) copy_columns();
  }
  void copy_column(const std::byte* from, int number) const override {
    work_.copy_elements(result_, from, column_begin(number), column_begin(number + 1));
  }
  std::byte* shown() override { return is_scattered_ ? result_ : readable_result(); }

  const bool is_scattered_;
  std::vector<Piece> pieces_;
  int64_t column_elements_ = 0;
  size_t summed_ = 0, returned_ = 0;   // pieces
  bool has_posted_ = false;            // the receives of what returns
  std::shared_ptr<Buffer> column_;     // sums so far, by piece
  std::shared_ptr<Buffer> scattered_;  // sums of the last host for the others
  std::vector<const std::byte*> addresses_;
};
}  // namespace

std::shared_ptr<HostsRound> sum_round(Hosts& hosts, const CollectiveWork& work,
                                      bool is_used_under_way) {
  return std::make_shared<SumRound>(hosts, work, is_used_under_way);
}

}  // namespace weft::comm
