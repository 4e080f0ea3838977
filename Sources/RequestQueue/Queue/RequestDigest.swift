/// A digest of the stored form, 128 bits, which tells whether two requests are the same.
///
/// It protects a tenant from its own mistakes; nothing between tenants depends on it.
struct RequestDigest: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    /// - Parameter form: the request's stored form. The requests that it depends on are left out.
    init(of request: QueuedRequest, form: [UInt8]) {
        var sum = Sum()
        if request.dependsOn.isEmpty {
            sum.add(form)
        } else {
            var independent = request
            independent.dependsOn = []
            sum.add(RequestForm.encode(independent))
        }
        if let lane = request.lane { sum.add(Array(lane.utf8)) }
        (high, low) = (sum.high, sum.low)
    }

    /// Two sums of the same words under different multipliers, each the folded product of 128 bits. Each process
    /// computes it anew; it is not stored.
    private struct Sum {
        var high: UInt64 = 0x9E37_79B9_7F4A_7C15
        var low: UInt64 = 0xC2B2_AE3D_27D4_EB4F

        mutating func add(_ bytes: [UInt8]) {
            bytes.withUnsafeBytes { bytes in
                var place = 0
                while place + 8 <= bytes.count {
                    add(bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self))
                    place += 8
                }
                var rest: UInt64 = 0
                for byte in bytes[place...] { rest = rest << 8 | UInt64(byte) }
                add(rest)
                // The length distinguishes a text from a longer one that ends in zeros.
                add(UInt64(bytes.count))
            }
        }

        private mutating func add(_ word: UInt64) {
            high = Self.fold(high ^ word, 0xA076_1D64_78BD_642F)
            low = Self.fold(low &+ word, 0xE703_7ED1_A0B4_28DB)
        }

        private static func fold(_ one: UInt64, _ other: UInt64) -> UInt64 {
            let product = one.multipliedFullWidth(by: other)
            return product.high ^ product.low
        }
    }
}
