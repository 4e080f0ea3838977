/// Pointers as C libraries declare them. An empty buffer without an address gets one that is never read.
extension UnsafeRawBufferPointer {
    var octets: UnsafePointer<UInt8> {
        let base = baseAddress ?? UnsafeRawPointer(bitPattern: 1).unsafelyUnwrapped
        return base.assumingMemoryBound(to: UInt8.self)
    }
}

extension UnsafeMutableRawBufferPointer {
    var octets: UnsafeMutablePointer<UInt8> { UnsafeMutablePointer(mutating: UnsafeRawBufferPointer(self).octets) }
}
