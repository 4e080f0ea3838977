/// Counts of durations in buckets of at most 1.6 % width.
struct Histogram {
    private static let precision = 6
    private var buckets = [Int](repeating: 0, count: (64 - precision + 1) << precision)
    /// How many durations were counted.
    private(set) var count = 0

    /// Counts one duration.
    mutating func record(nanoseconds: UInt64) {
        self.buckets[Self.bucket(of: nanoseconds)] += 1
        self.count += 1
    }

    /// The duration that this share of all durations does not exceed, in microseconds.
    func microseconds(atShare share: Double) -> Double {
        var left = Int((Double(self.count) * share).rounded(.up))
        for (index, count) in self.buckets.enumerated() where count > 0 {
            left -= count
            if left <= 0 { return Double(Self.lowest(ofBucket: index)) / 1000 }
        }
        return .nan
    }

    private static func bucket(of value: UInt64) -> Int {
        let magnitude = 64 - value.leadingZeroBitCount
        guard magnitude > self.precision + 1 else { return Int(value) }
        let shift = magnitude - self.precision - 1
        return (shift << self.precision) + Int(value >> UInt64(shift))
    }

    private static func lowest(ofBucket index: Int) -> UInt64 {
        guard index >= 2 << self.precision else { return UInt64(index) }
        let shift = (index >> self.precision) - 1
        return UInt64(index - (shift << self.precision)) << UInt64(shift)
    }
}
