//! The admin function: what people ask, answered from the tables; what they want done, put onto the queue. It never acts.
