/// A systematic Reed-Solomon erasure code over GF(2^16): any `count` different chunks of 32 bytes give the data back.
///
/// Sixteen polynomials of degree below `count` stand side by side; chunk x holds their values at x, big-endian. Chunks 0 to
/// `count - 1` are the data itself, later ones are interpolated (ML-KEM Braid, section 1.4). What goes through here is public.
enum ErasureCode {
    static let chunkSize = 32
    /// Ours: indices go up to here and begin again, so that an index never takes more than two bytes on the wire.
    static let maximumIndex: UInt16 = 1 << 14

    /// One chunk on its way.
    struct Chunk: Hashable, Sendable {
        let index: UInt16
        let bytes: Bytes32
    }

    /// The largest value in chunks: a key's vector.
    static let maximumCount = 36

    /// The places of the data's own chunks and their weights, by the number of chunks.
    private static let systematic: [(nodes: [UInt16], weights: [UInt16])] = (0...maximumCount).map { count in
        let nodes = (0..<UInt16(count)).map { $0 }
        return (nodes, GF65536.weights(nodes))
    }

    /// Chunk `index` of `data`, whose length is a multiple of 32.
    static func chunk(_ index: UInt16, of data: [UInt8]) -> Chunk {
        let count = data.count / chunkSize
        if Int(index) < count {
            let start = Int(index) * chunkSize
            return Chunk(index: index, bytes: data.withUnsafeBytes { Bytes32($0[start..<start + chunkSize]) })
        }
        let (nodes, weights) = systematic[count]
        let coefficients = GF65536.lagrange(nodes, weights: weights, at: index)
        return Chunk(
            index: index, bytes: data.withUnsafeBytes { combine($0, coefficients, stride: chunkSize, offset: 0) })
    }

    /// The data again, from `nodes.count` chunks: records of an index and 32 bytes one after the other.
    static func decode(_ records: [UInt8]) -> [UInt8] {
        let size = chunkSize + 2
        let count = records.count / size
        let nodes = (0..<count).map { UInt16(records[size * $0]) << 8 | UInt16(records[size * $0 + 1]) }
        let weights = GF65536.weights(nodes)
        var data: [UInt8] = []
        data.reserveCapacity(count * chunkSize)
        records.withUnsafeBytes { records in
            for index in 0..<UInt16(count) {
                if let place = nodes.firstIndex(of: index) {
                    data.append(contentsOf: records[size * place + 2..<size * (place + 1)])
                } else {
                    let coefficients = GF65536.lagrange(nodes, weights: weights, at: index)
                    combine(records, coefficients, stride: size, offset: 2).append(to: &data)
                }
            }
        }
        return data
    }

    /// The sum of all chunks, each times its coefficient.
    private static func combine(
        _ chunks: UnsafeRawBufferPointer, _ coefficients: [UInt16], stride: Int, offset: Int
    ) -> Bytes32 {
        withUnsafeTemporaryAllocation(of: UInt64.self, capacity: 4) { sum in
            sum.initialize(repeating: 0)
            for (place, coefficient) in coefficients.enumerated() {
                for word in 0..<4 {
                    let symbols = UInt64(
                        bigEndian: chunks.loadUnaligned(
                            fromByteOffset: place * stride + offset + 8 * word, as: UInt64.self))
                    sum[word] ^= GF65536.multiply(four: symbols, by: coefficient)
                }
            }
            for word in 0..<4 { sum[word] = sum[word].bigEndian }
            return Bytes32(UnsafeRawBufferPointer(sum))
        }
    }
}

extension Bytes32 {
    fileprivate init(_ bytes: Slice<UnsafeRawBufferPointer>) {
        self.init(UnsafeRawBufferPointer(rebasing: bytes))
    }
}

/// The field of 2^16 elements, x^16 + x^12 + x^3 + x + 1 (0x1100B).
enum GF65536 {
    static func multiply(_ left: UInt16, _ right: UInt16) -> UInt16 {
        var product: UInt32 = 0
        let (left, right) = (UInt32(left), UInt32(right))
        for bit in UInt32(0)..<16 { product ^= left << bit & (0 &- (right >> bit & 1)) }
        // x^16 is x^12 + x^3 + x + 1: each round takes four bits and more off the top.
        for _ in 0..<4 {
            let high = product >> 16
            product = product & 0xFFFF ^ high ^ high << 1 ^ high << 3 ^ high << 12
        }
        return UInt16(truncatingIfNeeded: product)
    }

    /// Four elements in one word, each times `factor`.
    static func multiply(four symbols: UInt64, by factor: UInt16) -> UInt64 {
        var result: UInt64 = 0
        for bit in (UInt16(0)..<16).reversed() {
            let carry = result >> 15 & 0x0001_0001_0001_0001
            result = (result << 1 & 0xFFFE_FFFE_FFFE_FFFE) ^ (carry &* 0x100B)
            result ^= symbols & (0 &- UInt64(factor >> bit & 1))
        }
        return result
    }

    /// `element` to the power 2^16 - 2.
    static func inverse(_ element: UInt16) -> UInt16 {
        var (result, power): (UInt16, UInt16) = (1, element)
        for _ in 0..<15 {
            power = multiply(power, power)
            result = multiply(result, power)
        }
        return result
    }

    /// The barycentric weights of different nodes: the inverse of each one's product of differences to the others.
    static func weights(_ nodes: [UInt16]) -> [UInt16] {
        nodes.map { node in
            var product: UInt16 = 1
            for other in nodes where other != node { product = multiply(product, node ^ other) }
            return inverse(product)
        }
    }

    /// What the value at each node counts for the value at `point`, which is no node.
    static func lagrange(_ nodes: [UInt16], weights: [UInt16], at point: UInt16) -> [UInt16] {
        var before: [UInt16] = []
        var product: UInt16 = 1
        for node in nodes {
            before.append(product)
            product = multiply(product, point ^ node)
        }
        var after: UInt16 = 1
        var result = weights
        for place in nodes.indices.reversed() {
            result[place] = multiply(multiply(before[place], after), weights[place])
            after = multiply(after, point ^ nodes[place])
        }
        return result
    }
}
