/// Secret records of one fixed size, oldest first, in one block of memory that is wiped when freed.
struct SecretRecords: ~Copyable, Sendable {
    package let recordSize: Int
    package private(set) var count = 0
    private var capacity = 0
    /// Unsafe only for the compiler: this value alone has the pointer, it cannot be copied, and no borrowed pointer
    /// outlives its call.
    private nonisolated(unsafe) var memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    init(recordSize: Int) {
        self.recordSize = recordSize
    }

    /// Copies all records in `bytes`.
    init(recordSize: Int, records bytes: UnsafeRawBufferPointer) {
        self.init(recordSize: recordSize)
        reserve(bytes.count / recordSize)
        memory.copyMemory(from: bytes)
        count = bytes.count / recordSize
    }

    deinit {
        SecretBytes.wipe(memory)
        memory.deallocate()
    }

    /// All records, concatenated.
    package var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: memory[0..<count * recordSize]) }

    subscript(index: Int) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: memory[index * recordSize..<(index + 1) * recordSize])
    }

    /// Appends a record that `fill` writes.
    package mutating func append(_ fill: (UnsafeMutableRawBufferPointer) -> Void) {
        reserve(count + 1)
        fill(UnsafeMutableRawBufferPointer(rebasing: memory[count * recordSize..<(count + 1) * recordSize]))
        count += 1
    }

    package mutating func remove(at index: Int) {
        shiftDown(from: index + 1, to: index)
    }

    package mutating func removeFirst(_ number: Int) {
        shiftDown(from: number, to: 0)
    }

    /// Moves the records from `source` on down to `target`, and wipes the freed bytes.
    private mutating func shiftDown(from source: Int, to target: Int) {
        let moved = UnsafeRawBufferPointer(rebasing: memory[source * recordSize..<count * recordSize])
        let end = (target + count - source) * recordSize
        UnsafeMutableRawBufferPointer(rebasing: memory[target * recordSize..<end]).copyMemory(from: moved)
        SecretBytes.wipe(UnsafeMutableRawBufferPointer(rebasing: memory[end..<count * recordSize]))
        count -= source - target
    }

    mutating func reserve(_ needed: Int) {
        guard needed > capacity else { return }
        capacity = max(needed, 2 * capacity, 8)
        let larger = UnsafeMutableRawBufferPointer.allocate(byteCount: capacity * recordSize, alignment: 16)
        larger.initializeMemory(as: UInt8.self, repeating: 0)
        larger.copyMemory(from: bytes)
        SecretBytes.wipe(memory)
        memory.deallocate()
        memory = larger
    }
}
