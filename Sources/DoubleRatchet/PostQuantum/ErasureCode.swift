/// A systematic Reed-Solomon erasure code over GF(2^16): any `count` different chunks of 32 bytes yield the data.
///
/// The data are the values of sixteen polynomials of degree below `count`; chunk x contains their values at x,
/// big-endian. Chunks 0 to `count - 1` are the data itself, later ones are interpolated (ML-KEM Braid, section 1.4).
/// All data here is public.
enum ErasureCode {
    static let chunkSize = 32
    /// Ours: upper bound of indices; the next one is 0 again, so that an index takes at most two bytes on the wire.
    static let maximumIndex: UInt16 = 1 << 14

    /// One chunk in transit.
    struct Chunk: Hashable, Sendable {
        package let index: UInt16
        package let bytes: Bytes32
    }

    /// The numbers of chunks of the ``Braid``'s values: header, both parts of a ciphertext, key vector.
    private static let counts = [
        Braid.headerSize, IncrementalKEM.firstSize, Braid.ciphertext2Size, IncrementalKEM.vectorSize,
    ].map { $0 / chunkSize }

    /// The nodes of the data's own chunks, for each of those numbers.
    private static let systematic = counts.map { ownPlaces($0) }

    private static func ownPlaces(_ count: Int) -> GF65536.Nodes {
        GF65536.Nodes((0..<UInt16(count)).map { $0 })
    }

    /// Chunk `index` of `data`, whose length is a multiple of 32.
    static func chunk(_ index: UInt16, of data: [UInt8]) -> Chunk {
        let count = data.count / chunkSize
        if Int(index) < count {
            let start = Int(index) * chunkSize
            return Chunk(index: index, bytes: data.withUnsafeBytes { Bytes32($0[start..<start + chunkSize]) })
        }
        let nodes = counts.firstIndex(of: count).map { systematic[$0] } ?? ownPlaces(count)
        return Chunk(
            index: index,
            bytes: data.withUnsafeBytes {
                interpolate($0, nodes, at: index, stride: chunkSize, offset: 0)
            })
    }

    /// Decodes the data from as many chunks as it has: concatenated records of an index and 32 bytes.
    static func decode(_ records: [UInt8]) -> [UInt8] {
        let size = chunkSize + 2
        let count = records.count / size
        let places = (0..<count).map { UInt16(records[size * $0]) << 8 | UInt16(records[size * $0 + 1]) }
        let nodes = GF65536.Nodes(places)
        var data: [UInt8] = []
        data.reserveCapacity(count * chunkSize)
        records.withUnsafeBytes { records in
            for index in 0..<UInt16(count) {
                if let place = places.firstIndex(of: index) {
                    data.append(contentsOf: records[size * place + 2..<size * (place + 1)])
                } else {
                    interpolate(records, nodes, at: index, stride: size, offset: 2).append(to: &data)
                }
            }
        }
        return data
    }

    /// The sum of all chunks, each multiplied by its coefficient for `point`.
    ///
    /// Each coefficient has four digits of four bits, which select the sums that its chunk is added to. The sums are
    /// then combined digit by digit and bit by bit from the top, and the result so far is doubled before each.
    private static func interpolate(
        _ chunks: UnsafeRawBufferPointer, _ nodes: GF65536.Nodes, at point: UInt16, stride: Int, offset: Int
    ) -> Bytes32 {
        var sum = SIMD16<UInt16>()
        // Two digits at once, because larger memory would not be on the stack.
        for shift in [8, 0] as [UInt16] {
            withUnsafeTemporaryAllocation(of: SIMD16<UInt16>.self, capacity: 32) { sums in
                sums.initialize(repeating: SIMD16())
                nodes.forEachCoefficient(at: point) { place, coefficient in
                    let symbols = chunks.loadUnaligned(
                        fromByteOffset: place * stride + offset, as: SIMD16<UInt16>.self)
                    sums[Int(coefficient >> shift & 15)] ^= symbols
                    sums[16 + Int(coefficient >> (shift + 4) & 15)] ^= symbols
                }
                for start in [16, 0] {
                    var half = 8
                    while half > 0 {
                        sum = GF65536.doubled(bigEndian: sum)
                        for place in start + half..<start + 2 * half {
                            sum ^= sums[place]
                            sums[place - half] ^= sums[place]
                        }
                        half /= 2
                    }
                }
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
    /// Logarithms to the base x, and the powers of x. Table look-ups are safe because all data here is public.
    fileprivate static let tables: (logarithms: [UInt16], powers: [UInt16]) = {
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

    /// The number of nonzero elements.
    fileprivate static let order = 65535

    static func multiply(_ left: UInt16, _ right: UInt16) -> UInt16 {
        guard left != 0, right != 0 else { return 0 }
        let tables = tables
        let exponent = Int(tables.logarithms[Int(left)]) + Int(tables.logarithms[Int(right)])
        return tables.powers[exponent % order]
    }

    /// Sixteen elements as stored in memory, high byte first, each times x.
    static func doubled(bigEndian symbols: SIMD16<UInt16>) -> SIMD16<UInt16> {
        let elements = symbols &<< 8 | symbols &>> 8
        let doubled = elements &<< 1 ^ (elements &>> 15) &* 0x100B
        return doubled &<< 8 | doubled &>> 8
    }

    package static func inverse(_ element: UInt16) -> UInt16 {
        precondition(element != 0)
        let tables = tables
        return tables.powers[(order - Int(tables.logarithms[Int(element)])) % order]
    }

    /// The barycentric weights of different nodes: for each, the inverse of the product of its differences to the
    /// others.
    static func weights(_ nodes: [UInt16]) -> [UInt16] {
        nodes.map { node in
            var product: UInt16 = 1
            for other in nodes where other != node { product = multiply(product, node ^ other) }
            return inverse(product)
        }
    }

    /// Different interpolation nodes, with the values that do not depend on the point.
    struct Nodes: Sendable {
        private let places: [UInt16]
        /// The logarithms of their barycentric weights.
        private let weights: [Int]

        init(_ places: [UInt16]) {
            self.places = places
            weights = GF65536.weights(places).map { Int(GF65536.tables.logarithms[Int($0)]) }
        }

        /// Calls `body` with the coefficient of each node's value for the value at `point`, which must not be a node.
        func forEachCoefficient(at point: UInt16, _ body: (_ place: Int, _ coefficient: UInt16) -> Void) {
            let tables = GF65536.tables
            var product = 0
            for node in places { product += Int(tables.logarithms[Int(point ^ node)]) }
            product = product % order + order
            for place in places.indices {
                var exponent = product - Int(tables.logarithms[Int(point ^ places[place])]) + weights[place]
                // Below three times the order.
                if exponent >= 2 * order { exponent -= 2 * order }
                if exponent >= order { exponent -= order }
                body(place, tables.powers[exponent])
            }
        }
    }
}
