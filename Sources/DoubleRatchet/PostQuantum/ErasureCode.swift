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
    ///
    /// Bit by bit from the top: the sum so far is doubled, and the chunks whose coefficient has the bit are added.
    private static func combine(
        _ chunks: UnsafeRawBufferPointer, _ coefficients: [UInt16], stride: Int, offset: Int
    ) -> Bytes32 {
        precondition(coefficients.count <= UInt64.bitWidth)
        var sum = SIMD16<UInt16>()
        for bit in (UInt16(0)..<16).reversed() {
            sum = GF65536.doubled(bigEndian: sum)
            var places: UInt64 = 0
            for (place, coefficient) in coefficients.enumerated() {
                places |= UInt64(coefficient >> bit & 1) << UInt64(place)
            }
            while places != 0 {
                let start = places.trailingZeroBitCount * stride + offset
                sum ^= chunks.loadUnaligned(fromByteOffset: start, as: SIMD16<UInt16>.self)
                places &= places - 1
            }
        }
        return withUnsafeBytes(of: sum) { Bytes32($0) }
    }
}

extension Bytes32 {
    fileprivate init(_ bytes: Slice<UnsafeRawBufferPointer>) {
        self.init(UnsafeRawBufferPointer(rebasing: bytes))
    }
}

/// The field of 2^16 elements, x^16 + x^12 + x^3 + x + 1 (0x1100B).
enum GF65536 {
    /// Logarithms to the base x, and the powers of x, as what goes through here is public.
    private static let tables: (logarithms: [UInt16], powers: [UInt16]) = {
        var logarithms = [UInt16](repeating: 0, count: 1 << 16)
        var powers = [UInt16](repeating: 1, count: 1 << 16)
        var power: UInt16 = 1
        for exponent in 0..<UInt16(order) {
            powers[Int(exponent)] = power
            logarithms[Int(power)] = exponent
            power = power << 1 ^ (power >> 15) &* 0x100B
        }
        return (logarithms, powers)
    }()

    /// How many elements are not zero.
    private static let order = 65535

    static func multiply(_ left: UInt16, _ right: UInt16) -> UInt16 {
        guard left != 0, right != 0 else { return 0 }
        let tables = tables
        let exponent = Int(tables.logarithms[Int(left)]) + Int(tables.logarithms[Int(right)])
        return tables.powers[exponent % order]
    }

    /// Sixteen elements as they stand in memory, high byte first, each times x.
    static func doubled(bigEndian symbols: SIMD16<UInt16>) -> SIMD16<UInt16> {
        let elements = symbols &<< 8 | symbols &>> 8
        let doubled = elements &<< 1 ^ (elements &>> 15) &* 0x100B
        return doubled &<< 8 | doubled &>> 8
    }

    static func inverse(_ element: UInt16) -> UInt16 {
        precondition(element != 0)
        let tables = tables
        return tables.powers[(order - Int(tables.logarithms[Int(element)])) % order]
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
        let tables = tables
        var product = 0
        for node in nodes { product += Int(tables.logarithms[Int(point ^ node)]) }
        product %= order
        var result = weights
        for (place, node) in nodes.enumerated() {
            let quotient = product + order - Int(tables.logarithms[Int(point ^ node)])
            result[place] = tables.powers[(quotient + Int(tables.logarithms[Int(weights[place])])) % order]
        }
        return result
    }
}
